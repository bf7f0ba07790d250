package chart

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fatih/color"
	"golang.org/x/term"
)

// A Check is one comparison with the paper. Its texts are the caller's, with
// units; what does not apply is empty.
type Check struct {
	Item       string // "Fig. 13, ShareGPT, vLLM"
	Paper      string
	Ours       string
	Difference string
	Tolerance  string
	OK         bool
	Kind       Kind
	Reference  string // what Paper is where it is not the paper's: "measured"
}

// Result returns "ok" or "MISS".
func (c Check) Result() string {
	switch {
	case !c.OK:
		return "MISS"
	case c.Kind == KnownMiss:
		return "known"
	case c.Kind == Explained:
		return "after"
	}
	return "ok"
}

// counted says whether a check is one that can pass: not what was found afterwards,
// nor what is known to miss.
func (c Check) counted() bool { return c.Kind != Explained && c.Kind != KnownMiss }

// Class and Sign show the result on a page.
func (c Check) Class() string { return map[string]string{"ok": "ok", "MISS": "miss"}[c.Result()] }
func (c Check) Sign() string {
	return map[string]string{"ok": "✓", "MISS": "✗"}[c.Result()]
}

func validChecks(checks []Check) error {
	for i, c := range checks {
		err := printable("the item", c.Item, true)
		for _, s := range []string{c.Reference, c.Paper, c.Ours, c.Difference, c.Tolerance} {
			err = errors.Join(err, printable("a text", s, false))
		}
		if c.Kind.Meaning() == "" {
			err = errors.Join(err, fmt.Errorf("%q is not a kind: want one of %q", c.Kind, allKinds))
		}
		if err != nil {
			return fmt.Errorf("%w: check %d (%q): %w", ErrFigure, i+1, c.Item, err)
		}
	}
	return nil
}

// WriteTable writes the checks, two lines each, which a terminal of 100 columns has
// room for, and how many hold. Only a terminal gets colour, and not with NO_COLOR;
// the words say the same.
func WriteTable(w io.Writer, checks []Check) error {
	f, is := w.(*os.File)
	coloured := is && term.IsTerminal(int(f.Fd())) && !color.NoColor
	if err := validChecks(checks); err != nil {
		return err
	}
	_, err := io.WriteString(w, checkTable(checks, coloured))
	return err
}

func checkTable(checks []Check, coloured bool) string {
	paint := painter(coloured)
	var b strings.Builder
	for _, c := range checks {
		pad := strings.Repeat(" ", len("known")-len(c.Result()))
		fmt.Fprintf(&b, "%s%s  %s (%s)\n", paint(c), pad, c.Item, c.Kind)
		tolerance := "tolerance"
		if c.Kind == KnownMiss { // its bounds are wide; what is said is why
			tolerance = "cause:"
		}
		var said []string
		for _, s := range []struct{ name, text string }{{cmp.Or(c.Reference, "paper"), c.Paper}, {"ours", c.Ours}, {"difference", c.Difference}, {tolerance, c.Tolerance}} {
			if s.text != "" {
				said = append(said, s.name+" "+s.text)
			}
		}
		fmt.Fprintf(&b, "       %s\n", strings.Join(said, ", "))
	}
	for _, line := range counts(checks) {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// counts says how many checks hold, kind by kind: what is only an order is not added
// to what is a number, and what was explained afterwards is no pass.
func counts(checks []Check) []string {
	var lines []string
	for _, k := range allKinds {
		all, ok, meaning := 0, 0, k.Meaning()
		for _, c := range checks {
			if c.Kind == k {
				all++
				if c.Reference != "" {
					meaning = k.meaning(c.Reference)
				}
				if c.OK {
					ok++
				}
			}
		}
		switch {
		case all == 0:
		case k == Explained || k == KnownMiss:
			lines = append(lines, fmt.Sprintf("%s: %d, not counted: %s", k, all, meaning))
		default:
			lines = append(lines, fmt.Sprintf("%s: %d of %d within their tolerance: %s", k, ok, all, meaning))
		}
	}
	return lines
}

// painter colours the result of a check.
func painter(coloured bool) func(Check) string {
	good, bad := color.New(color.FgGreen), color.New(color.FgRed, color.Bold)
	for _, c := range []*color.Color{good, bad} {
		if coloured {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	return func(c Check) string {
		switch {
		case !c.OK:
			return bad.Sprint(c.Result())
		case !c.counted():
			return c.Result()
		}
		return good.Sprint(c.Result())
	}
}

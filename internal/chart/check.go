package chart

import (
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
}

// Result returns "ok" or "MISS".
func (c Check) Result() string {
	if c.OK {
		return "ok"
	}
	return "MISS"
}

func validChecks(checks []Check) error {
	for i, c := range checks {
		err := printable("the item", c.Item, true)
		for _, s := range []string{c.Paper, c.Ours, c.Difference, c.Tolerance} {
			err = errors.Join(err, printable("a text", s, false))
		}
		if c.Kind.Meaning() == "" {
			err = errors.Join(err, fmt.Errorf("%q is not a kind: predicted, calibrated, order only or simulated", c.Kind))
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
		pad := strings.Repeat(" ", len("MISS")-len(c.Result()))
		fmt.Fprintf(&b, "%s%s  %s (%s)\n", paint(c), pad, c.Item, c.Kind)
		var said []string
		for _, s := range []struct{ name, text string }{{"paper", c.Paper}, {"ours", c.Ours}, {"difference", c.Difference}, {"tolerance", c.Tolerance}} {
			if s.text != "" {
				said = append(said, s.name+" "+s.text)
			}
		}
		fmt.Fprintf(&b, "      %s\n", strings.Join(said, ", "))
	}
	fmt.Fprintf(&b, "%d of %d hold: they are within their tolerance, which does not make them equal to the paper's\n", holding(checks), len(checks))
	return b.String()
}

func holding(checks []Check) int {
	n := 0
	for _, c := range checks {
		if c.OK {
			n++
		}
	}
	return n
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
		if c.OK {
			return good.Sprint(c.Result())
		}
		return bad.Sprint(c.Result())
	}
}

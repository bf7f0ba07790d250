package chart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

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

// Result says whether a check holds, in a word.
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
			err = errors.Join(err, fmt.Errorf("%q is not a kind: predicted, calibrated or order only", c.Kind))
		}
		if err != nil {
			return fmt.Errorf("%w: check %d (%q): %w", ErrFigure, i+1, c.Item, err)
		}
	}
	return nil
}

// WriteTable writes the checks in columns and how many hold. Only a terminal gets
// colour, and not with NO_COLOR; the words say the same.
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
	rows := [][]string{{"item", "paper", "ours", "difference", "tolerance", "kind", "result"}}
	for _, c := range checks {
		rows = append(rows, []string{c.Item, c.Paper, c.Ours, c.Difference, c.Tolerance, string(c.Kind), c.Result()})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	paint := painter(coloured)
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			if last := len(row) - 1; i == last {
				b.WriteString(paint(n-1, checks, cell) + "\n")
				break
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numeric := i > 0 && i < 5; numeric {
				cell = pad + cell
			} else {
				cell += pad
			}
			b.WriteString(cell + "  ")
		}
	}
	hold := holding(checks)
	fmt.Fprintf(&b, "%d of %d hold\n", hold, len(checks))
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

// painter colours the result of check n; -1 is the head of the table.
func painter(coloured bool) func(n int, checks []Check, cell string) string {
	good, bad := color.New(color.FgGreen), color.New(color.FgRed, color.Bold)
	for _, c := range []*color.Color{good, bad} {
		if coloured {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	return func(n int, checks []Check, cell string) string {
		switch {
		case n < 0:
			return cell
		case checks[n].OK:
			return good.Sprint(cell)
		default:
			return bad.Sprint(cell)
		}
	}
}

package chart

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrFigure is wrapped by every error about a figure or a check that cannot be drawn. Nothing has been written
// then.
var ErrFigure = errors.New("chart: a figure that cannot be drawn")

const (
	mostSeries = 7 // that can be distinguished
	mostPanels = 6
	mostSize   = 1e12 // of a number
	leastSize  = 1e-12
)

var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

func validAll(figures []Figure) error {
	seen := map[string]bool{}
	for _, f := range figures {
		if err := f.valid(); err != nil {
			return fmt.Errorf("%w: figure %q: %w", ErrFigure, f.Name, err)
		}
		name := strings.ToLower(f.Name) // some file systems ignore case
		if seen[name] {
			return fmt.Errorf("%w: two figures are named %q", ErrFigure, f.Name)
		}
		seen[name] = true
	}
	return nil
}

func (f Figure) valid() error {
	switch {
	case !fileName.MatchString(f.Name):
		return errors.New("the name is not one of a file: letters, digits, - and _ are allowed")
	case f.Kind.Meaning() == "":
		return fmt.Errorf("%q is not a kind: want one of %q", f.Kind, allKinds)
	case len(f.Panels) < 1 || len(f.Panels) > mostPanels:
		return fmt.Errorf("%d panels: want 1 to %d", len(f.Panels), mostPanels)
	case len(f.series()) > mostSeries:
		return fmt.Errorf("%d series: at most %d can be distinguished", len(f.series()), mostSeries)
	}
	err := errors.Join(printable("the title", f.Title, true), printable("the seeds", f.Seeds, true),
		printable("the note", f.Note, false))
	var titles []string
	for _, p := range f.Panels {
		if len(f.Panels) > 1 {
			titles = append(titles, p.Title)
		}
		if e := p.valid(); e != nil {
			err = errors.Join(err, fmt.Errorf("panel %q: %w", p.Title, e))
		}
	}
	return errors.Join(err, distinct("panels", titles))
}

func (p Panel) valid() error {
	err := errors.Join(printable("the title", p.Title, false), printable("the x axis' title", p.X.Title, true),
		printable("the y axis' title", p.Y.Title, true), number("the y axis' limit", p.Y.Max))
	switch _, lines := p.Data.(Lines); {
	case err != nil:
		return err
	case p.Y.Max < 0:
		return fmt.Errorf("the y axis' limit is %v: it must be above 0, or 0 for none", p.Y.Max)
	case p.X.Log && !lines:
		return errors.New("the x axis of bars and columns cannot be logarithmic")
	}
	if err := p.Data.valid(p); err != nil {
		return err
	}
	least := math.Inf(1)
	for _, r := range p.Data.rows() {
		if err := r.valid(p.Y.Log); err != nil {
			return fmt.Errorf("series %q at %q: %w", r.series, r.x, err)
		}
		if r.measured {
			least = min(least, r.Mean)
		}
	}
	if p.Y.Log && p.Y.Max > 0 && least >= p.Y.Max {
		return fmt.Errorf("the y axis' limit %v leaves nothing to see: the least value is %v", p.Y.Max, least)
	}
	return nil
}

// valid checks a number and its spread.
func (r row) valid(log bool) error {
	var err error
	if r.measured {
		err = errors.Join(number("the mean", r.Mean), number("the standard deviation", r.SD))
		if err == nil && (r.SD < 0 || r.Seeds < 1) {
			err = fmt.Errorf("the standard deviation is %v, of %d seeds: want at least 0, and one seed", r.SD, r.Seeds)
		}
	}
	if r.Paper != nil {
		err = errors.Join(err, number("the paper's value", r.Paper.Low), number("the paper's value", r.Paper.High))
		if r.Paper.Low > r.Paper.High {
			err = errors.Join(err, fmt.Errorf("the paper's range is from %v to %v", r.Paper.Low, r.Paper.High))
		}
	}
	if log && r.measured && (r.Mean <= 0 || r.Paper != nil && r.Paper.Low <= 0) {
		err = errors.Join(err, fmt.Errorf("a logarithmic axis cannot show %v", r.Mean))
	}
	return err
}

func (l Lines) valid(p Panel) error {
	err := distinct("lines", l.series())
	for _, line := range l.Lines {
		if len(line.Points) == 0 {
			err = errors.Join(err, fmt.Errorf("line %q has no points", line.Name))
		}
		for i, point := range line.Points {
			err = errors.Join(err, number(fmt.Sprintf("line %q: x", line.Name), point.X))
			if i > 0 && point.X <= line.Points[i-1].X || p.X.Log && point.X <= 0 {
				err = errors.Join(err, fmt.Errorf("line %q: x of point %d is %v: want more than before, and on a logarithmic "+
					"axis more than 0", line.Name, i+1, point.X))
			}
		}
	}
	for _, m := range l.Marks {
		if !slices.Contains(l.series(), m.Series) || p.X.Log && m.At.Low <= 0 {
			err = errors.Join(err, fmt.Errorf("a mark of %q at %v: want one of a line, on its axis", m.Series, m.At.Low))
		}
	}
	return errors.Join(err, some("lines", len(l.Lines)), printable("what the marks are", l.MarksAre, len(l.Marks) > 0))
}

func (b Bars) valid(Panel) error {
	err := errors.Join(some("groups", len(b.Groups)), some("series", len(b.Series)), distinct("groups", b.Groups),
		distinct("series", b.series()))
	for _, s := range b.Series {
		if len(s.Values) != len(b.Groups) {
			err = errors.Join(err, fmt.Errorf("series %q has %d values for %d groups", s.Name, len(s.Values), len(b.Groups)))
		}
	}
	return err
}

func (s Stacks) valid(p Panel) error {
	err := errors.Join(some("parts", len(s.Parts)), some("columns", len(s.Columns)), distinct("parts", s.Parts))
	if p.Y.Log {
		err = errors.Join(err, errors.New("a logarithmic axis cannot show what is stacked"))
	}
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
		if len(c.Parts) != len(s.Parts) {
			err = errors.Join(err, fmt.Errorf("column %q has %d values for %d parts", c.Name, len(c.Parts), len(s.Parts)))
		}
		for _, v := range c.Parts {
			if v.Mean < 0 || v.Paper != nil && (v.Paper.Low < 0 || v.Paper.Low != v.Paper.High) {
				err = errors.Join(err, fmt.Errorf("column %q: a part is negative, or a range", c.Name))
			}
		}
	}
	return errors.Join(err, distinct("columns", names))
}

func some(what string, n int) error {
	if n == 0 {
		return fmt.Errorf("it has no %s", what)
	}
	return nil
}

// number returns an error for a number that is not finite, or of a size that an axis cannot have.
func number(what string, v float64) error {
	if size := math.Abs(v); !(size <= mostSize) || size != 0 && size < leastSize {
		return fmt.Errorf("%s is %v: an axis has numbers from %v to %v", what, v, leastSize, mostSize)
	}
	return nil
}

// printable returns an error for a text that is missing, or that XML cannot have.
func printable(what, s string, needed bool) error {
	switch {
	case needed && strings.TrimSpace(s) == "":
		return fmt.Errorf("%s is missing", what)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == 0xfffe ||
			r == 0xffff
	}):
		return fmt.Errorf("%s %q has a character that cannot be printed", what, s)
	}
	return nil
}

// distinct returns an error for names of which one is missing or occurs twice.
func distinct(what string, names []string) error {
	for i, name := range names {
		if err := printable("a name among the "+what, name, true); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("two of the %s are named %q", what, name)
		}
	}
	return nil
}

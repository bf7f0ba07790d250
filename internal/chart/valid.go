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

// ErrFigure is in the chain of every error about a figure or a check that cannot
// be drawn. Nothing has been written then.
var ErrFigure = errors.New("chart: a figure that cannot be drawn")

const (
	mostSeries = 7 // that can be told apart
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
		// Some file systems do not tell A from a.
		if name := strings.ToLower(f.Name); seen[name] {
			return fmt.Errorf("%w: two figures are named %q", ErrFigure, f.Name)
		} else {
			seen[name] = true
		}
	}
	return nil
}

func (f Figure) valid() error {
	switch {
	case !fileName.MatchString(f.Name):
		return errors.New("the name is not one of a file: letters, digits, - and _ are allowed")
	case f.Kind.Meaning() == "":
		return fmt.Errorf("%q is not a kind: predicted, calibrated, order only or simulated", f.Kind)
	case len(f.Panels) == 0:
		return errors.New("it has no panel")
	case len(f.Panels) > mostPanels:
		return fmt.Errorf("%d panels: at most %d have room", len(f.Panels), mostPanels)
	}
	if err := errors.Join(printable("the title", f.Title, true), printable("the seeds", f.Seeds, true), printable("the note", f.Note, false)); err != nil {
		return err
	}
	titles := map[string]bool{}
	for i, p := range f.Panels {
		if err := p.valid(len(f.Panels) > 1); err != nil {
			return fmt.Errorf("panel %d (%q): %w", i+1, p.Title, err)
		}
		if titles[p.Title] {
			return fmt.Errorf("two panels are titled %q", p.Title)
		}
		titles[p.Title] = true
	}
	if names := f.series(); len(names) > mostSeries {
		return fmt.Errorf("%d series: at most %d can be told apart", len(names), mostSeries)
	}
	return nil
}

func (p Panel) valid(titled bool) error {
	if p.Data == nil {
		return errors.New("it has no data")
	}
	if err := errors.Join(printable("the title", p.Title, titled), printable("the x axis' title", p.X.Title, true), printable("the y axis' title", p.Y.Title, true)); err != nil {
		return err
	}
	if err := number("the y axis' limit", p.Y.Max); err != nil {
		return err
	}
	if p.Y.Max < 0 {
		return fmt.Errorf("the y axis' limit is %v: it must be above 0, or 0 for none", p.Y.Max)
	}
	if err := p.Data.valid(p); err != nil {
		return err
	}
	for _, r := range p.Data.rows() {
		if err := r.valid(p.Y.Log); err != nil {
			return fmt.Errorf("series %q at %q: %w", r.series, r.x, err)
		}
	}
	if p.Y.Log && p.Y.Max > 0 {
		if least, _ := extent(p.Data.rows()); least >= p.Y.Max {
			return fmt.Errorf("the y axis' limit %v leaves nothing to see: the least value is %v", p.Y.Max, least)
		}
	}
	return nil
}

// valid checks a number and its spread.
func (r row) valid(log bool) error {
	if r.measured {
		switch err := errors.Join(number("the mean", r.Mean), number("the standard deviation", r.SD)); {
		case err != nil:
			return err
		case r.SD < 0:
			return fmt.Errorf("the standard deviation is %v: it cannot be negative", r.SD)
		case r.Seeds < 1:
			return fmt.Errorf("the mean of %d seeds: there must be at least one", r.Seeds)
		case log && r.Mean <= 0:
			return fmt.Errorf("the mean is %v: a logarithmic axis has only what is above 0", r.Mean)
		}
	}
	if r.Paper == nil {
		return nil
	}
	switch err := errors.Join(number("the paper's value", r.Paper.Low), number("the paper's value", r.Paper.High)); {
	case err != nil:
		return err
	case r.Paper.Low > r.Paper.High:
		return fmt.Errorf("the paper's range %v to %v is upside down", r.Paper.Low, r.Paper.High)
	case log && r.measured && r.Paper.Low <= 0:
		return fmt.Errorf("the paper's value is %v: a logarithmic axis has only what is above 0", r.Paper.Low)
	}
	return nil
}

func (l Lines) valid(p Panel) error {
	if len(l.Lines) == 0 {
		return errors.New("it has no lines")
	}
	var names []string
	for _, line := range l.Lines {
		names = append(names, line.Name)
		if len(line.Points) == 0 {
			return fmt.Errorf("line %q has no points", line.Name)
		}
		for i, point := range line.Points {
			if err := number(fmt.Sprintf("line %q: the x of point %d", line.Name, i+1), point.X); err != nil {
				return err
			}
			if i > 0 && point.X <= line.Points[i-1].X {
				return fmt.Errorf("line %q: x does not rise from point %d (%v) to the next (%v)", line.Name, i, line.Points[i-1].X, point.X)
			}
			if p.X.Log && point.X <= 0 {
				return fmt.Errorf("line %q: the x of point %d is %v: a logarithmic axis has only what is above 0", line.Name, i+1, point.X)
			}
		}
	}
	for _, m := range l.Marks {
		if !slices.Contains(names, m.Series) {
			return fmt.Errorf("a mark is for %q, which is no line here", m.Series)
		}
		if p.X.Log && m.At.Low <= 0 {
			return fmt.Errorf("the mark of %q is at %v: a logarithmic axis has only what is above 0", m.Series, m.At.Low)
		}
	}
	return errors.Join(distinct("lines", names), printable("what the marks are", l.MarksAre, len(l.Marks) > 0))
}

func (b Bars) valid(p Panel) error {
	switch {
	case p.X.Log:
		return errors.New("the x axis of bars has no scale: it cannot be logarithmic")
	case len(b.Groups) == 0:
		return errors.New("it has no groups")
	case len(b.Series) == 0:
		return errors.New("it has no series")
	}
	var names []string
	for _, s := range b.Series {
		names = append(names, s.Name)
		if len(s.Values) != len(b.Groups) {
			return fmt.Errorf("series %q has %d values for %d groups", s.Name, len(s.Values), len(b.Groups))
		}
	}
	return errors.Join(distinct("groups", b.Groups), distinct("series", names))
}

func (s Stacks) valid(p Panel) error {
	switch {
	case p.X.Log:
		return errors.New("the x axis of columns has no scale: it cannot be logarithmic")
	case p.Y.Log:
		return errors.New("what is stacked cannot be seen on a logarithmic axis")
	case len(s.Parts) == 0:
		return errors.New("it has no parts")
	case len(s.Columns) == 0:
		return errors.New("it has no columns")
	}
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
		if len(c.Parts) != len(s.Parts) {
			return fmt.Errorf("column %q has %d values for %d parts", c.Name, len(c.Parts), len(s.Parts))
		}
		for i, v := range c.Parts {
			if v.Mean < 0 || v.Paper != nil && v.Paper.Low < 0 {
				return fmt.Errorf("column %q: part %q is negative", c.Name, s.Parts[i])
			}
			if v.Paper != nil && v.Paper.Low != v.Paper.High {
				return fmt.Errorf("column %q: part %q: a range cannot be stacked", c.Name, s.Parts[i])
			}
		}
	}
	return errors.Join(distinct("columns", names), distinct("parts", s.Parts))
}

// number says what is wrong with a number: it must be finite, and of a size that
// an axis can have.
func number(what string, v float64) error {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%s is %v", what, v)
	case size > mostSize || size != 0 && size < leastSize:
		return fmt.Errorf("%s is %v: an axis has numbers from %v to %v", what, v, leastSize, mostSize)
	}
	return nil
}

// printable says what is wrong with a text: XML has no control characters.
func printable(what, s string, needed bool) error {
	switch {
	case needed && strings.TrimSpace(s) == "":
		return fmt.Errorf("%s is missing", what)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == 0xfffe || r == 0xffff }):
		return fmt.Errorf("%s %q has a character that cannot be printed", what, s)
	}
	return nil
}

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

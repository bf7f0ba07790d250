package chart

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrFigure is wrapped when a figure cannot be drawn.
var ErrFigure = errors.New("chart: a figure that cannot be drawn")

const (
	maxSize = 1e12
	minSize = 1e-12
)

// valid returns an error if the figure has no panels, or a number that its axis cannot show.
func (f Figure) valid() error {
	err := errors.New("there are no panels")
	for _, p := range f.Panels {
		if err = p.valid(); err != nil {
			err = fmt.Errorf("panel %q: %w", p.Title, err)
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%w: figure %q: %w", ErrFigure, f.Name, err)
	}
	return nil
}

func (p Panel) valid() error {
	if err := complete(p.Data); err != nil {
		return err
	}
	rows := p.Data.rows()
	if len(rows) == 0 {
		return errors.New("there are no numbers")
	}
	for _, r := range rows {
		if err := r.valid(p); err != nil {
			return fmt.Errorf("series %q at %q: %w", r.series, r.x, err)
		}
	}
	return nil
}

// complete returns an error if a group or column lacks a value.
func complete(d Data) error {
	switch d := d.(type) {
	case Bars:
		for _, s := range d.Series {
			if len(s.Values) != len(d.Groups) {
				return fmt.Errorf("series %q has %d values for %d groups", s.Name, len(s.Values), len(d.Groups))
			}
		}
	case Stacks:
		for _, c := range d.Columns {
			if len(c.Parts) != len(d.Parts) {
				return fmt.Errorf("column %q has %d values for %d parts", c.Name, len(c.Parts), len(d.Parts))
			}
		}
	}
	return nil
}

func (r row) valid(p Panel) error {
	numbers := []float64{r.Mean, r.SD}
	if r.Paper != nil {
		numbers = append(numbers, r.Paper.Low, r.Paper.High)
	}
	for _, v := range numbers {
		if size := math.Abs(v); !(size <= maxSize) || size != 0 && size < minSize {
			return fmt.Errorf("the number %v: an axis has numbers from %v to %v", v, minSize, maxSize)
		}
	}
	if p.Y.Log && (r.Mean <= 0 || r.Paper != nil && r.Paper.Low <= 0) {
		return fmt.Errorf("a logarithmic axis cannot show %v", r.Mean)
	}
	return nil
}

// printable replaces characters that names of files may contain but XML and HTML may not.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return utf8.RuneError
		}
		return r
	}, text)
}

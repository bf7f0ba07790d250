package chart

import (
	"encoding/csv"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A row is one number that is drawn: a value, or a mark of the paper's.
type row struct {
	panel, series, x string
	Value
	measured bool // false: Paper is all there is
}

func (l Lines) rows() []row {
	var all []row
	for _, line := range l.Lines {
		for _, p := range line.Points {
			all = append(all, row{series: line.Name, x: exact(p.X), Value: p.Value, measured: true})
		}
	}
	for _, m := range l.Marks {
		all = append(all, row{series: m.Series, x: l.MarksAre, Value: Value{Paper: &m.At}})
	}
	return all
}

func (b Bars) rows() []row {
	var all []row
	for i, group := range b.Groups {
		for _, s := range b.Series {
			all = append(all, row{series: s.Name, x: group, Value: s.Values[i], measured: true})
		}
	}
	return all
}

func (s Stacks) rows() []row {
	var all []row
	for _, c := range s.Columns {
		for i, part := range s.Parts {
			all = append(all, row{series: part, x: c.Name, Value: c.Parts[i], measured: true})
		}
	}
	return all
}

// rows returns the rows of all panels.
func (f Figure) rows() []row {
	var all []row
	for _, p := range f.Panels {
		for _, r := range p.Data.rows() {
			r.panel = p.Title
			all = append(all, r)
		}
	}
	return all
}

// series returns the names of all panels, each once.
func (f Figure) series() []string {
	var names []string
	for _, p := range f.Panels {
		for _, name := range p.Data.series() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (l Lines) series() []string {
	var names []string
	for _, line := range l.Lines {
		names = append(names, line.Name)
	}
	return names
}

func (b Bars) series() []string {
	var names []string
	for _, s := range b.Series {
		names = append(names, s.Name)
	}
	return names
}

func (s Stacks) series() []string { return s.Parts }

// table returns the CSV of a figure, one line for each number drawn. A range of the
// paper's ends in paper_high, which is empty otherwise. A mark has no mean.
func (f Figure) table() string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"panel", "series", "x", "mean", "sd", "seeds", "paper", "paper_high"}) // a Builder does not fail
	for _, r := range f.rows() {
		fields := []string{r.panel, r.series, r.x, "", "", "", "", ""}
		if r.measured {
			fields[3], fields[4], fields[5] = exact(r.Mean), exact(r.SD), strconv.Itoa(r.Seeds)
		}
		if r.Paper != nil {
			fields[6] = exact(r.Paper.Low)
			if r.Paper.High != r.Paper.Low {
				fields[7] = exact(r.Paper.High)
			}
		}
		_ = w.Write(fields)
	}
	w.Flush()
	return b.String()
}

// exact formats a number with all its digits.
func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func trimSign(s string) string {
	if strings.Trim(s, "-0.") == "" {
		return strings.TrimPrefix(s, "-")
	}
	return s
}

// long returns a number with the digits that another deserves in a table: about four
// that count, as the paper's have.
func long(v, like float64) string {
	switch size := math.Abs(like); {
	case size >= 1e6 || size != 0 && size < 0.001:
		return strconv.FormatFloat(v, 'e', 3, 64)
	case size >= 1000:
		return trimSign(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 1 || size == 0:
		return trimSign(strconv.FormatFloat(v, 'f', 2, 64))
	default:
		return trimSign(strconv.FormatFloat(v, 'f', 4, 64))
	}
}

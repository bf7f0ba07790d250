package chart

import (
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
)

// A row is one number that is drawn.
type row struct {
	panel, series, x string
	Value
}

func (l Lines) rows() []row {
	var all []row
	for _, line := range l {
		for _, p := range line.Points {
			all = append(all, row{series: line.Name, x: exact(p.X), Value: p.Value})
		}
	}
	return all
}

func (b Bars) rows() []row {
	var all []row
	for i, group := range b.Groups {
		for _, s := range b.Series {
			all = append(all, row{series: s.Name, x: group, Value: s.Values[i]})
		}
	}
	return all
}

func (s Stacks) rows() []row {
	var all []row
	for _, c := range s.Columns {
		for i, part := range s.Parts {
			all = append(all, row{series: part, x: c.Name, Value: c.Parts[i]})
		}
	}
	return all
}

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
	for _, line := range l {
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

// table returns the figure as CSV, with a line for each number drawn. If the paper's value is a range,
// paper_high is its high end; otherwise it is empty.
func (f Figure) table() string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"panel", "series", "x", "mean", "sd", "seeds", "paper", "paper_high"}) // a Builder does not fail
	for _, r := range f.rows() {
		fields := []string{r.panel, r.series, r.x, exact(r.Mean), exact(r.SD), strconv.Itoa(r.Seeds), "", ""}
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

func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

package chart

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

const widestColumn = 1.6 * widest

// draw adds our column of each group and the paper's beside it.
func (s Stacks) draw(f *frame) {
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	for _, name := range s.Parts {
		f.explain(name, &bar{look: f.styles.of(name)})
	}
	ticks := f.setGroups(names, "\n") // the line above is whose a column is
	width := min(0.42, float64(widestColumn/(f.width/vg.Length(len(names)))))
	add := func(x float64, whose string, c Column, of func(Value) *Range) {
		ticks = append(ticks, plot.Tick{Value: x, Label: whose})
		sum := 0.
		for i, part := range c.Parts {
			if v := of(part); v != nil {
				f.Add(&bar{x, width, sum, sum + v.Low, f.styles.of(s.Parts[i]), whose == paperName, short(v.Low)})
				sum += v.Low
			}
		}
		left, right := x-width/2, x+width/2
		if whose == paperName {
			outline := plotter.XYs{{X: left}, {X: left, Y: sum}, {X: right, Y: sum}, {X: right}}
			f.Add(&plotter.Line{XYs: outline, LineStyle: stroke(ink, 1.4, 4, 2.5)})
		}
		if f.panel.cuts(sum) {
			f.addChevron(x, ink, whose == paperName)
		}
	}
	for i, c := range s.Columns {
		x, off := float64(i), 0.
		if slices.ContainsFunc(c.Parts, func(v Value) bool { return v.Paper != nil }) {
			off = width/2 + 0.02
			add(x+off, paperName, c, func(v Value) *Range { return v.Paper })
		}
		add(x-off, "ours", c, func(v Value) *Range { return Printed(v.Mean) })
	}
	f.X.Tick.Marker = plot.ConstantTicks(ticks)
}

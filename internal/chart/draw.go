package chart

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A frame is a panel that is drawn into a plot.
type frame struct {
	*plot.Plot
	*layout
	panel     Panel
	width     vg.Length // of the data, about
	low, high float64   // ends of the y axis
}

// newPlot draws a panel.
func (l *layout) newPlot(p Panel, width vg.Length) *plot.Plot {
	f := &frame{Plot: plot.New(), layout: l, panel: p, width: width}
	f.BackgroundColor = nil
	f.Title.Text = wrapped(sans(panelSize, true), p.Title, width)
	f.setAxis(&f.X, p.X.Title, width, p.X.Log, int(width/55))
	f.setAxis(&f.Y, p.Y.Title, panelHeight-95, p.Y.Log, 6)
	f.Add(&plotter.Grid{Horizontal: stroke(grid, 0.8)})
	f.setLimits()
	p.Data.draw(f)
	if p.X.Log {
		f.X.Min, f.X.Max = math.Floor(f.X.Min), max(f.X.Max, math.Floor(f.X.Min)+1)
	} else if f.X.Min >= 0 && f.X.Min < 0.3*f.X.Max {
		f.X.Min = 0
	}
	f.Y.Min, f.Y.Max = f.low, f.high
	return f.Plot
}

// setLimits finds the ends of the y axis.
func (f *frame) setLimits() {
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range f.panel.Data.rows() {
		if r.measured {
			least, most = min(least, r.Mean), max(most, r.Mean+r.SD)
			if r.Paper != nil {
				least, most = min(least, r.Paper.Low), max(most, r.Paper.High)
			}
		}
	}
	if s, is := f.panel.Data.(Stacks); is {
		least, most = 0, s.highest()
	}
	top := f.panel.Y.Max
	if top == 0 {
		top = most
	}
	if f.panel.Y.Log {
		f.low = math.Floor(math.Log10(least / 1.3))
		f.high = max(math.Log10(top), f.low+1)
		return
	}
	f.low, f.high = min(0, least), max(0, top)
	if f.high <= f.low {
		f.high = f.low + 1
	}
}

func (f *frame) setAxis(a *plot.Axis, title string, length vg.Length, log bool, labels int) {
	a.Label.Text = wrapped(sans(textSize, false), title, length)
	a.Label.TextStyle.Font, a.Label.TextStyle.Color, a.Label.Padding = sans(textSize, false).Font, ink, 6
	a.Tick.Label.Font, a.Tick.Label.Color = sans(tickSize, false).Font, ink
	a.Tick.LineStyle, a.Tick.Length, a.LineStyle, a.Padding = stroke(muted, 0.8), 5, stroke(muted, 1), 0
	a.Tick.Marker = ticks(labels)
	if log {
		a.Tick.Marker = logTicks{}
	}
}

// setGroups names the groups of bars or columns, at 0, 1, ... on the x axis. If a name is too long for its
// group, all are drawn vertically.
func (f *frame) setGroups(names []string) {
	f.X.Min, f.X.Max = -0.5, float64(len(names))-0.5
	f.X.Tick.LineStyle.Color = color.Transparent // without a line there would be no distance to the labels
	style, most := &f.X.Tick.Label, f.width/vg.Length(len(names))-6
	if slices.ContainsFunc(names, func(name string) bool { return style.Width(wrapped(*style, name, most)) > most }) {
		style.Rotation, style.XAlign, style.YAlign, most = math.Pi/2, text.XRight, text.YCenter, 90
	}
	lines := 0
	for _, name := range names {
		lines = max(lines, strings.Count(wrapped(*style, name, most), "\n"))
	}
	var all []plot.Tick
	for i, name := range names {
		label := wrapped(*style, name, most)
		if style.Rotation == 0 { // gonum/plot centres a label of fewer lines
			label += strings.Repeat("\n ", lines-strings.Count(label, "\n"))
		}
		all = append(all, plot.Tick{Value: float64(i), Label: label})
	}
	f.X.Tick.Marker = plot.ConstantTicks(all)
}

// at returns where a point is on the axes: a logarithmic axis has decimal logarithms. (A plot.LogScale would
// place the axis' title at the mean of its ends.)
func (f *frame) at(x, y float64) plotter.XY {
	if f.panel.X.Log {
		x = math.Log10(x)
	}
	return plotter.XY{X: x, Y: f.y(y)}
}

func (f *frame) y(v float64) float64 {
	if f.panel.Y.Log {
		return max(math.Log10(max(v, 0)), -99)
	}
	return v
}

// logTicks marks an axis of decimal logarithms.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) []plot.Tick {
	all := plot.LogTicks{Prec: 6}.Ticks(math.Pow(10, low-1e-9), math.Pow(10, high)) // of 10^low, LogTicks rounds some up
	for i := range all {
		all[i].Value = math.Log10(all[i].Value)
	}
	return all
}

// ticks marks an axis at about that many multiples of 1, 2 or 5 times a power of ten. plot.DefaultTicks has
// three labels.
type ticks int

func (t ticks) Ticks(low, high float64) []plot.Tick {
	least := (high - low) / float64(max(1, t))
	step := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{2, 2.5, 2} {
		if step < least*(1-1e-9) {
			step *= m
		}
	}
	var all []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		all = append(all, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step+0, 'g', 6, 64)})
	}
	return all
}

// addSpread adds the whiskers of values with a deviation.
func (f *frame) addSpread(style draw.LineStyle, points ...Point) {
	bars := &plotter.YErrorBars{LineStyle: style, CapWidth: 6}
	for _, p := range points {
		if p.SD == 0 || p.Seeds < 2 {
			continue
		}
		f.spread = true
		at := plotter.XY{X: p.X, Y: f.y(p.Mean)}
		if f.panel.X.Log {
			at.X = math.Log10(p.X)
		}
		bars.XYs = append(bars.XYs, at)
		bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{at.Y - f.y(p.Mean-p.SD), f.y(p.Mean+p.SD) - at.Y})
	}
	f.Add(bars)
}

// draw adds lines with their points and spreads. The first line is above the others, the paper's points on top.
func (l Lines) draw(f *frame) {
	for _, line := range l.Lines {
		look := f.styles.of(line.Name)
		f.explain(line.Name, &plotter.Line{LineStyle: look.line()}, &plotter.Scatter{GlyphStyle: look.marker(false)})
	}
	for _, line := range slices.Backward(l.Lines) {
		look := f.styles.of(line.Name)
		var ours, paper plotter.XYs
		for _, p := range line.Points {
			ours = append(ours, f.at(p.X, p.Mean))
			if p.Paper != nil {
				paper = append(paper, f.at(p.X, p.Paper.Low), f.at(p.X, p.Paper.High))
			}
		}
		f.addSpread(stroke(look.colour, 1), line.Points...)
		f.Add(&plotter.Line{XYs: ours, LineStyle: look.line()}, &plotter.Scatter{XYs: ours, GlyphStyle: look.marker(false)})
		for both := range slices.Chunk(paper, 2) {
			f.Add(&plotter.Line{XYs: both, LineStyle: stroke(look.colour, 1.2, 2, 2)})
			f.explain(paperName, &plotter.Scatter{GlyphStyle: looks[0].grey().marker(true)})
		}
		f.Add(&plotter.Scatter{XYs: paper, GlyphStyle: look.marker(true)})
	}
	for i, m := range l.Marks {
		look, y := f.styles.of(m.Series), f.high-(f.high-f.low)*0.03*float64(i+1)
		ends := plotter.XYs{{X: f.at(m.At.Low, 1).X, Y: y}, {X: f.at(m.At.High, 1).X, Y: y}}
		f.Add(&plotter.Line{XYs: ends, LineStyle: stroke(look.colour, 1.4)},
			&plotter.Scatter{XYs: ends, GlyphStyle: look.marker(true)})
		f.explain(l.MarksAre, &plotter.Line{LineStyle: stroke(muted, 1.4)},
			&plotter.Scatter{GlyphStyle: looks[0].grey().marker(true)})
	}
}

const (
	barShare = 0.84 // of a group
	widest   = 46   // bar
)

// draw adds the bars of each group, the paper's beside ours. A group is 1 wide on the x axis.
func (b Bars) draw(f *frame) {
	slots, paper := 0, false
	for _, s := range b.Series {
		slots++
		f.explain(s.Name, f.styles.of(s.Name).bar(false))
		if s.fromPaper() {
			slots++
			paper = true
		}
	}
	if paper {
		f.explain(paperName, looks[0].grey().bar(true))
	}
	f.setGroups(b.Groups)
	group := f.width / vg.Length(len(b.Groups))
	width := min(widest/float64(group), barShare/float64(slots))
	for i := range b.Groups {
		x := float64(i) - width*float64(slots-1)/2
		for _, s := range b.Series {
			v, look := s.Values[i], f.styles.ofBar(b, i, s)
			f.addBar(x, width, math.Inf(-1), v.Mean, look.bar(false))
			f.addSpread(stroke(ink, 1.2), Point{x, v})
			top := v.Mean
			if v.Seeds > 1 {
				top += v.SD
			}
			f.addLabel(x, width, top, short(v.Mean))
			x += width
			if !s.fromPaper() {
				continue
			}
			if p := v.Paper; p != nil {
				f.addBar(x, width, math.Inf(-1), p.High, look.bar(true))
				label := short(p.Low)
				if p.Low != p.High {
					f.addBar(x, width, math.Inf(-1), p.Low, look.bar(true))
					label += "–" + short(p.High)
				}
				f.addLabel(x, width, p.High, label)
			}
			x += width
		}
	}
}

func (s Series) fromPaper() bool {
	return slices.ContainsFunc(s.Values, func(v Value) bool { return v.Paper != nil })
}

// addBar adds a bar around a place of the x axis, clipped to the axes. If from is -Inf, the bar begins at 0, or
// at the lower end of a logarithmic axis.
func (f *frame) addBar(x, width, from, to float64, bar *plotter.Polygon) {
	if math.IsInf(from, -1) {
		from = 0
	}
	within := func(v float64) float64 { return min(max(f.y(v), f.low), f.high) }
	left, right, low, high := x-width/2, x+width/2, within(from), within(to)
	bar.XYs = []plotter.XYs{{{X: left, Y: low}, {X: left, Y: high}, {X: right, Y: high}, {X: right, Y: low}}}
	f.Add(bar)
}

// addLabel writes a number above a bar, vertically if the bar is narrow.
func (f *frame) addLabel(x, width, top float64, s string) {
	style := aligned(sans(leastText, false), text.XCenter, text.YBottom)
	offset := vg.Point{Y: 3}
	if bar := vg.Length(width) * f.width / vg.Length(f.X.Max-f.X.Min); style.Width(s) > bar-2 {
		style = aligned(sans(leastText, false), text.XLeft, text.YCenter)
		style.Rotation, offset.X = math.Pi/2, -style.FontExtents().Descent
	}
	at := plotter.XY{X: x, Y: min(max(f.y(max(top, 0)), f.low), f.high)}
	f.Add(&plotter.Labels{XYs: plotter.XYs{at}, Labels: []string{s}, TextStyle: []text.Style{style}, Offset: offset})
}

// highest returns the greatest sum of a column.
func (s Stacks) highest() (most float64) {
	for _, c := range s.Columns {
		ours, paper := 0.0, 0.0
		for _, v := range c.Parts {
			ours += v.Mean
			if v.Paper != nil {
				paper += v.Paper.Low
			}
		}
		most = max(most, ours, paper)
	}
	return most
}

// draw adds our column of each group and the paper's beside it.
func (s Stacks) draw(f *frame) {
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	for _, name := range s.Parts {
		f.explain(name, f.styles.of(name).bar(false))
	}
	f.setGroups(names)
	width := min(0.42, 1.6*widest/float64(f.width/vg.Length(len(names))))
	for i, c := range s.Columns {
		x := float64(i)
		if slices.ContainsFunc(c.Parts, func(v Value) bool { return v.Paper != nil }) {
			f.explain(paperName, looks[0].grey().bar(true))
			f.addColumn(s, x+width/2+0.01, width, c, true, func(v Value) *Range { return v.Paper })
			x -= width/2 + 0.01
		}
		f.addColumn(s, x, width, c, false, func(v Value) *Range { return Printed(v.Mean) })
	}
}

func (f *frame) addColumn(s Stacks, x, width float64, c Column, hollow bool, of func(Value) *Range) {
	sum := 0.0
	for i, part := range c.Parts {
		v := of(part)
		if v == nil {
			continue
		}
		f.addBar(x, width, sum, sum+v.Low, f.styles.of(s.Parts[i]).bar(hollow))
		if middle := sum + v.Low/2; v.Low/(f.high-f.low)*panelHeight > 20 && middle < f.high {
			style := aligned(sans(leastText, false), text.XCenter, text.YCenter)
			at := plotter.XYs{{X: x, Y: middle}}
			f.Add(&plotter.Labels{XYs: at, Labels: []string{short(v.Low)}, TextStyle: []text.Style{style}})
		}
		sum += v.Low
	}
}

// cut reports whether the axis of a panel ends below a value. Rounding of sums is allowed.
func (p Panel) cut() bool {
	beyond := func(v float64) bool { return p.Y.Max > 0 && v > p.Y.Max*(1+1e-6) }
	if s, is := p.Data.(Stacks); is {
		return beyond(s.highest())
	}
	return slices.ContainsFunc(p.Data.rows(), func(r row) bool {
		return r.measured && (beyond(r.Mean) || r.Paper != nil && beyond(r.Paper.High))
	})
}

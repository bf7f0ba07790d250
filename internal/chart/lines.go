package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotter is gonum's, which our own draw through.
type plotter = plot.Plotter

const (
	arrowRoom = 12   // above the end of an axis
	markRoom  = 13.5 // of one line's marks, above that
)

type lineChart struct {
	*frame
	data   Lines
	marked []string // the lines that have marks, from the top
	arrows []vg.Length
}

func (l Lines) plotter(f *frame) plotter {
	chart := &lineChart{frame: f, data: l, marked: l.marked()}
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range l.rows() {
		if r.measured {
			a, b := extent([]row{r})
			most = max(most, b, r.Mean+r.SD)
			if least = min(least, a); !f.panel.Y.Log {
				least = min(least, r.Mean-r.SD)
			}
		}
	}
	f.setY(least, most, arrowRoom+markRoom*vg.Length(f.marked))
	chart.setX()
	return chart
}

// marked are the lines that have marks.
func (l Lines) marked() []string {
	return slices.DeleteFunc(l.series(), func(name string) bool {
		return !slices.ContainsFunc(l.Marks, func(m Mark) bool { return m.Series == name })
	})
}

// setX lays out the x axis: from 0 if that is near.
func (l *lineChart) setX() {
	s := l.xScale()
	low, high := math.Inf(1), math.Inf(-1)
	var at []float64
	add := func(x float64) { low, high = min(low, s.at(x)), max(high, s.at(x)) }
	for _, line := range l.data.Lines {
		for _, p := range line.Points {
			add(p.X)
			if !slices.Contains(at, p.X) {
				at = append(at, p.X)
			}
		}
	}
	for _, m := range l.data.Marks {
		add(m.At.Low)
		add(m.At.High)
	}
	room := (high - low) * 0.03
	if room <= math.Abs(high)*1e-9 {
		room = max(0.5, math.Abs(high)*0.1)
	}
	axis := &l.plot.X
	axis.Min, axis.Max = low-room, high+room
	if s != logarithmic && low >= 0 && low < 0.3*high {
		axis.Min = 0
	}
	axis.Tick.Marker = plot.ConstantTicks(s.ticks(axis.Min, axis.Max, int(l.width/55)))
	if own := l.ownTicks(at); s == logarithmic && own != nil {
		axis.Tick.Marker = own
	}
}

// ownTicks are the xs of the points themselves, if every second of their labels
// has room: block sizes are better read so than powers of ten.
func (l *lineChart) ownTicks(at []float64) plot.ConstantTicks {
	slices.Sort(at)
	for every := 1; every <= 2; every++ {
		var all plot.ConstantTicks
		end, room, style := -vg.Length(1e9), true, sans(tickSize, false)
		for i, x := range at {
			t := plot.Tick{Value: l.xScale().at(x)}
			if i%every == 0 {
				t.Label = exact(x)
				middle, half := l.width*vg.Length(l.plot.X.Norm(t.Value)), style.Width(t.Label)/2
				room = room && middle-half >= end+4
				end = middle + half
			}
			all = append(all, t)
		}
		if room {
			return all
		}
	}
	return nil
}

func (l *lineChart) xScale() scale { return scale(l.panel.X.Log) }

func (l *lineChart) x(c draw.Canvas, v float64) vg.Length {
	return c.X(l.plot.X.Norm(l.xScale().at(v)))
}

// Plot draws spreads below lines, lines below points, and the paper's on top.
func (l *lineChart) Plot(c draw.Canvas, _ *plot.Plot) {
	top := l.limit(c)
	l.arrows = nil
	l.drawMarks(c, top)
	for _, line := range l.data.Lines {
		look := l.styles.of(line.Name)
		for _, p := range line.Points {
			if p.SD > 0 && p.Seeds > 1 && !l.panel.cuts(p.Mean) {
				whisker(c, l.x(c, p.X), l.y(c, p.Mean-p.SD), l.y(c, p.Mean+p.SD), c.Min.Y, top, stroke(look.colour, 1))
			}
		}
	}
	for _, line := range slices.Backward(l.data.Lines) { // the first is on top
		look := l.styles.of(line.Name)
		var at []vg.Point
		for _, p := range line.Points {
			at = append(at, vg.Point{X: l.x(c, p.X), Y: l.y(c, p.Mean)})
		}
		kept, cuts := cutAt(at, top+0.01)
		for _, run := range kept {
			if len(run) > 1 {
				c.StrokeLines(stroke(look.colour, 1.8, look.dashes...), run)
			}
		}
		for _, x := range cuts {
			arrow(c, l.free(x), top, look.colour, false)
		}
		for i, p := range line.Points {
			if !l.panel.cuts(p.Mean) {
				look.marker(c, at[i], false)
			}
		}
	}
	for _, line := range l.data.Lines {
		for _, p := range line.Points {
			if p.Paper != nil {
				l.drawPaper(c, l.styles.of(line.Name), l.x(c, p.X), *p.Paper, top)
			}
		}
	}
}

// free moves an arrow to the right of those that are where it would be: none is
// hidden.
func (l *lineChart) free(x vg.Length) vg.Length {
	for slices.ContainsFunc(l.arrows, func(o vg.Length) bool { return math.Abs(float64(o-x)) < 9 }) {
		x += 3
	}
	l.arrows = append(l.arrows, x)
	return x
}

// drawPaper draws a hollow marker, two that are joined for a range.
func (l *lineChart) drawPaper(c draw.Canvas, look look, x vg.Length, paper Range, top vg.Length) {
	low, high := l.y(c, paper.Low), l.y(c, paper.High)
	if paper.Low != paper.High && low < top {
		c.StrokeLine2(stroke(look.colour, 1.2, 2, 2), x, low, x, min(high, top))
	}
	for i, v := range []float64{paper.Low, paper.High} {
		switch {
		case i == 1 && paper.Low == paper.High:
		case l.panel.cuts(v):
			arrow(c, l.free(x), top, look.colour, true)
		default:
			look.marker(c, vg.Point{X: x, Y: l.y(c, v)}, true)
		}
	}
}

// drawMarks draws the paper's ranges of x above the axis' end, one row a line,
// and a single x as an upright through the plot.
func (l *lineChart) drawMarks(c draw.Canvas, top vg.Length) {
	for i, name := range l.marked {
		y := c.Max.Y - markRoom*(vg.Length(i)+0.5)
		for _, m := range l.data.Marks {
			if m.Series == name {
				look := l.styles.of(name)
				low, high := l.x(c, m.At.Low), l.x(c, m.At.High)
				if m.At.Low == m.At.High {
					c.StrokeLine2(stroke(look.colour, 1, look.dashes...), low, c.Min.Y, low, y)
				}
				bracket(c, look, low, high, y)
			}
		}
	}
}

// bracket is a range on a line that lies, with the series' marker in its middle.
func bracket(c draw.Canvas, look look, low, high, y vg.Length) {
	s := stroke(look.colour, 1.4)
	c.StrokeLine2(s, low, y, high, y)
	c.StrokeLine2(s, low, y-4, low, y+4)
	c.StrokeLine2(s, high, y-4, high, y+4)
	look.marker(c, vg.Point{X: (low + high) / 2, Y: y}, true)
}

// cutAt cuts a line at a height. It returns the runs below, and where the line
// goes beyond: once for each time that it does.
func cutAt(line []vg.Point, top vg.Length) (kept [][]vg.Point, cuts []vg.Length) {
	var run []vg.Point
	for i, p := range line {
		above := p.Y > top
		switch {
		case i == 0:
			if above {
				cuts = append(cuts, p.X)
			}
		case above != (line[i-1].Y > top):
			q := line[i-1]
			x := q.X + (p.X-q.X)*(top-q.Y)/(p.Y-q.Y)
			run = append(run, vg.Point{X: x, Y: top})
			if above {
				kept, run, cuts = append(kept, run), nil, append(cuts, x)
			}
		}
		if !above {
			run = append(run, p)
		}
	}
	if run != nil {
		kept = append(kept, run)
	}
	return kept, cuts
}

func (l Lines) samples(s *styles) []sample {
	var all []sample
	paper := false
	for _, line := range l.Lines {
		look := s.of(line.Name)
		all = append(all, sample{line.Name, func(c draw.Canvas) {
			y := c.Center().Y
			c.StrokeLine2(stroke(look.colour, 1.8, look.dashes...), c.Min.X, y, c.Max.X, y)
			look.marker(c, c.Center(), false)
		}})
		paper = paper || slices.ContainsFunc(line.Points, func(p Point) bool { return p.Paper != nil })
	}
	if paper {
		all = append(all, sample{paperName, func(c draw.Canvas) {
			look{colour: muted}.marker(c, c.Center(), true)
		}})
	}
	if len(l.Marks) > 0 {
		all = append(all, sample{l.MarksAre, func(c draw.Canvas) {
			bracket(c, look{colour: muted}, c.Min.X+1, c.Max.X-1, c.Center().Y)
		}})
	}
	return all
}

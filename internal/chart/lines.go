package chart

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	arrowRoom = 12   // above the end of an axis
	markRoom  = 13.5 // of one line's marks, above that
)

// draw adds spreads below lines, lines below points, and the paper's points on top.
// The first line is above the others.
func (l Lines) draw(f *frame) {
	for _, line := range l.Lines {
		look := f.styles.of(line.Name)
		f.explain(line.Name, &plotter.Line{LineStyle: look.line()}, &plotter.Scatter{GlyphStyle: look.marker(false)})
	}
	for _, line := range slices.Backward(l.Lines) {
		look := f.styles.of(line.Name)
		drawn := &cutLine{plotter.Line{LineStyle: look.line()}, f, false}
		points, spread := &plotter.Scatter{GlyphStyle: look.marker(false)}, f.spreads(stroke(look.colour, 1))
		for _, p := range line.Points {
			at := f.at(p.X, p.Mean)
			drawn.XYs = append(drawn.XYs, at)
			if f.panel.cuts(p.Mean) {
				drawn.cut, f.chevrons = true, true
			} else {
				points.XYs = append(points.XYs, at)
				spread.add(at, p.Value)
			}
		}
		f.Add(spread, drawn, points)
	}
	for _, line := range l.Lines {
		f.drawPaper(line)
	}
	if marked := l.marked(); len(marked) > 0 {
		f.Add(marks{l, marked, f})
		f.explain(l.MarksAre, &mark{look{colour: muted}, 0, 0, 0})
	}
}

// drawPaper adds a hollow marker for each value of the paper, two that are joined for a range.
func (f *frame) drawPaper(line Line) {
	own := f.styles.of(line.Name)
	points := &plotter.Scatter{GlyphStyle: own.marker(true)}
	for _, p := range line.Points {
		if p.Paper == nil {
			continue
		}
		low, high := f.at(p.X, p.Paper.Low), f.at(p.X, p.Paper.High)
		if low != high {
			f.Add(&plotter.Line{XYs: plotter.XYs{low, high}, LineStyle: stroke(own.colour, 1.2, 2, 2)})
		}
		for _, v := range slices.Compact([]float64{p.Paper.Low, p.Paper.High}) {
			if f.panel.cuts(v) {
				f.addChevron(low.X, own.colour, true)
			} else {
				points.XYs = append(points.XYs, f.at(p.X, v))
			}
		}
		f.explain(paperName, &plotter.Scatter{GlyphStyle: look{colour: muted}.marker(true)})
	}
	f.Add(points)
}

// A cutLine has a chevron where it leaves the axis at its upper end.
type cutLine struct {
	plotter.Line
	f   *frame
	cut bool
}

func (l *cutLine) Plot(c draw.Canvas, p *plot.Plot) {
	l.Line.Plot(c, p)
	x, y := p.Transforms(&c)
	var last vg.Point
	for i, xy := range l.XYs {
		at := vg.Point{X: x(xy.X), Y: y(xy.Y)}
		if top := c.Max.Y + 0.01; at.Y > top && (i == 0 || last.Y <= top) {
			leaves := at.X
			if i > 0 {
				leaves = last.X + (at.X-last.X)*(top-last.Y)/(at.Y-last.Y)
			}
			l.f.arrow(c, leaves, l.Color, false)
		}
		last = at
	}
}

func (l *cutLine) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	if l.cut {
		return above(arrowRoom)
	}
	return nil
}

// marks are the paper's ranges of x, above the axis' end, one row a line.
type marks struct {
	Lines
	marked []string // the lines that have marks, from the top
	f      *frame
}

// marked are the lines that have marks.
func (l Lines) marked() []string {
	return slices.DeleteFunc(l.series(), func(name string) bool {
		return !slices.ContainsFunc(l.Marks, func(m Mark) bool { return m.Series == name })
	})
}

func (m marks) DataRange() (xmin, xmax, ymin, ymax float64) {
	var xs plotter.XYs
	for _, mark := range m.Marks {
		xs = append(xs, m.f.at(mark.At.Low, 1), m.f.at(mark.At.High, 1))
	}
	xmin, xmax, _, _ = plotter.XYRange(xs)
	_, _, ymin, ymax = plotter.XYRange(plotter.XYs{})
	return xmin, xmax, ymin, ymax
}

func (m marks) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	return above(arrowRoom + markRoom*vg.Length(len(m.marked)))
}

// Plot draws a single x as an upright through the plot, too.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	for _, at := range m.Marks {
		look := m.f.styles.of(at.Series)
		row := len(m.marked) - slices.Index(m.marked, at.Series)
		y := c.Max.Y + arrowRoom + markRoom*(vg.Length(row)-0.5)
		low, high := c.X(p.X.Norm(m.f.at(at.At.Low, 1).X)), c.X(p.X.Norm(m.f.at(at.At.High, 1).X))
		if low == high {
			c.StrokeLine2(stroke(look.colour, 1, look.dashes...), low, c.Min.Y, low, y)
		}
		(&mark{look, low, high, y}).draw(&c)
	}
}

// A mark is a range on a line that lies, with the series' marker in its middle.
type mark struct {
	look
	low, high, y vg.Length
}

func (m *mark) draw(c *draw.Canvas) {
	s := stroke(m.colour, 1.4)
	c.StrokeLine2(s, m.low, m.y, m.high, m.y)
	c.StrokeLine2(s, m.low, m.y-4, m.low, m.y+4)
	c.StrokeLine2(s, m.high, m.y-4, m.high, m.y+4)
	c.DrawGlyphNoClip(m.marker(true), vg.Point{X: (m.low + m.high) / 2, Y: m.y})
}

func (m *mark) Thumbnail(c *draw.Canvas) {
	(&mark{m.look, c.Min.X + 1, c.Max.X - 1, c.Center().Y}).draw(c)
}

package chart

import (
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A frame is a panel on its way into a plot.
type frame struct {
	panel         Panel
	styles        *styles
	plot          *plot.Plot
	width, height vg.Length // about what the data have, for what must be known before
	marked        int       // lines with marks in the panel of the figure that has most
	top           float64   // where the y axis ends and what is beyond is cut, in its scale
}

// draft lays out the plot of the panel.
func (f *frame) draft() *plot.Plot {
	p, g, width, height := f.panel, f.plot, f.width, f.height
	g.BackgroundColor = nil
	if p.Title != "" {
		g.Title.Text = wrapped(sans(panelSize, true), p.Title, width)
		g.Title.TextStyle = aligned(sans(panelSize, true), text.XCenter, text.YTop)
		g.Title.Padding = 8
	}
	for _, axis := range []struct {
		a     *plot.Axis
		title string
		room  vg.Length
	}{{&g.X, p.X.Title, width}, {&g.Y, p.Y.Title, height}} {
		axis.a.Label.Text = wrapped(sans(textSize, false), axis.title, axis.room)
		axis.a.Label.TextStyle.Font = sans(textSize, false).Font
		axis.a.Label.TextStyle.Color = ink
		axis.a.Label.Padding = 6
		axis.a.Tick.Label.Font = sans(tickSize, false).Font
		axis.a.Tick.Label.Color = ink
		axis.a.Tick.LineStyle = stroke(muted, 0.8)
		axis.a.Tick.Length = 5
		axis.a.LineStyle = stroke(muted, 1)
		axis.a.Padding = 0
	}
	g.Add(gridLines{f})
	g.Add(p.Data.plotter(f))
	return g
}

func (f *frame) yScale() scale { return scale(f.panel.Y.Log) }

// setY lays out the y axis for values from least to most, and for 0, with
// headroom above where the axis ends: for arrows, labels and marks.
func (f *frame) setY(least, most float64, headroom vg.Length) {
	s := f.yScale()
	low := min(0, least)
	if s != logarithmic {
		most = max(0, most)
	}
	if f.panel.Y.Max > 0 {
		most = f.panel.Y.Max
	}
	if s == logarithmic {
		low = math.Floor(math.Log10(least / 1.3))
	}
	high := s.at(most)
	if high <= low { // nothing but zeros or one value
		high = low + 1
	}
	f.top = high
	share := float64(min(headroom/f.height, 0.6))
	axis := &f.plot.Y
	axis.Min, axis.Max = low, low+(high-low)/(1-share)
	end := axis.Max
	if f.panel.Y.Max > 0 || share > 0.15 {
		end = high
	}
	axis.Tick.Marker = plot.ConstantTicks(s.ticks(low, end, 6))
}

// y takes a value to its height on the canvas. What a logarithmic axis cannot
// have is at its bottom.
func (f *frame) y(c draw.Canvas, v float64) vg.Length {
	if f.yScale() == logarithmic && v <= 0 {
		return c.Min.Y - 1
	}
	return c.Y(f.plot.Y.Norm(f.yScale().at(v)))
}

// limit is the height where the axis ends: above is headroom.
func (f *frame) limit(c draw.Canvas) vg.Length {
	if f.panel.Y.Max == 0 {
		return c.Max.Y
	}
	return c.Y(f.plot.Y.Norm(f.top))
}

// cuts is whether a value is beyond the end of the axis. Sums of shares are
// allowed their rounding.
func (p Panel) cuts(v float64) bool { return p.Y.Max > 0 && v > p.Y.Max*(1+1e-6) }

// gridLines lie under the data, at the labels of the y axis and at its end.
type gridLines struct{ f *frame }

func (g gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := c.Y(p.Y.Norm(t.Value)); !t.IsMinor() && y > c.Min.Y+0.5 && y <= c.Max.Y {
			c.StrokeLine2(stroke(grid, 0.8), c.Min.X, y, c.Max.X, y)
		}
	}
	if g.f.panel.Y.Max > 0 {
		y := g.f.limit(c)
		c.StrokeLine2(stroke(muted, 0.8, 2, 3), c.Min.X, y, c.Max.X, y)
	}
}

// categories label the x axis of bars and columns at 0, 1, ...
func (f *frame) categories(names []string, above string) []plot.Tick {
	f.plot.X.Min, f.plot.X.Max = -0.5, float64(len(names))-0.5
	f.plot.X.Tick.LineStyle.Color = ground // room, but nothing to see
	room := f.width/vg.Length(len(names)) - 6
	labels, most := make([]string, len(names)), 0
	for i, name := range names {
		labels[i] = wrapped(sans(tickSize, false), name, room)
		most = max(most, strings.Count(labels[i], "\n"))
	}
	all := make([]plot.Tick, len(names))
	for i, label := range labels {
		// A label of fewer lines is centred unless it has as many.
		fill := strings.Repeat("\n ", most-strings.Count(label, "\n"))
		all[i] = plot.Tick{Value: float64(i), Label: above + label + fill}
	}
	return all
}

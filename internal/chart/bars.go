package chart

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	barShare = 0.84 // of a group, the rest is air
	widest   = 46   // bar
)

type barChart struct {
	*frame
	data   Bars
	slots  int // in a group
	labels text.Style
}

func (b Bars) plotter(f *frame) plotter {
	chart := &barChart{frame: f, data: b}
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range b.rows() {
		a, z := extent([]row{r})
		most = max(most, z, r.Mean+r.SD)
		if least = min(least, a); !f.panel.Y.Log {
			least = min(least, r.Mean-r.SD)
		}
	}
	for _, s := range b.Series {
		chart.slots++
		if s.fromPaper() {
			chart.slots++
		}
	}
	headroom := chart.setLabels()
	f.setY(least, most, headroom)
	f.plot.X.Tick.Marker = plot.ConstantTicks(f.categories(b.Groups, ""))
	return chart
}

func (s Series) fromPaper() bool {
	return slices.ContainsFunc(s.Values, func(v Value) bool { return v.Paper != nil })
}

// setLabels chooses the size in which the values above the bars have room, or
// turns them, and returns the room that they need above the tallest.
func (b *barChart) setLabels() vg.Length {
	slot := b.slot(b.width / vg.Length(len(b.data.Groups)))
	tallest := "0"
	for _, r := range b.data.rows() {
		if r.Paper != nil && r.Paper.Low != r.Paper.High {
			tallest = "0\n0"
		}
	}
	longest := func(s text.Style) vg.Length {
		var most vg.Length
		for _, r := range b.data.rows() {
			most = max(most, s.Width(short(r.Mean)))
			if r.Paper != nil {
				most = max(most, s.Width(r.Paper.short()))
			}
		}
		return most
	}
	for _, size := range []vg.Length{tickSize, 11, leastText} {
		b.labels = aligned(sans(size, false), text.XCenter, text.YBottom)
		if longest(b.labels) <= slot-1 {
			return b.labels.Height(tallest) + 9 + arrowRoom
		}
	}
	b.labels = aligned(sans(11, false), text.XLeft, text.YCenter)
	b.labels.Rotation = math.Pi / 2
	return longest(b.labels) + 9 + arrowRoom
}

func (b *barChart) slot(group vg.Length) vg.Length {
	return min(widest, group*barShare/vg.Length(b.slots))
}

// short is a range in two lines: a bar is narrow.
func (r Range) short() string {
	if r.Low == r.High {
		return short(r.Low)
	}
	return short(r.Low) + "–\n" + short(r.High)
}

func (b *barChart) Plot(c draw.Canvas, p *plot.Plot) {
	group := c.X(p.X.Norm(1)) - c.X(p.X.Norm(0))
	slot := b.slot(group)
	for i := range b.data.Groups {
		x := c.X(p.X.Norm(float64(i))) - slot*vg.Length(b.slots)/2
		for _, s := range b.data.Series {
			v, look := s.Values[i], b.look(i, s)
			b.drawOurs(c, look, v, x, slot)
			x += slot
			if !s.fromPaper() {
				continue
			}
			if v.Paper != nil {
				b.drawPaper(c, look, *v.Paper, x, slot)
			}
			x += slot
		}
	}
	c.StrokeLine2(stroke(muted, 1), c.Min.X, b.base(c), c.Max.X, b.base(c))
}

// look is the series', or, where there is one series, that of a group that is Fixed.
func (b *barChart) look(group int, s Series) look {
	if name := b.data.Groups[group]; len(b.data.Series) == 1 && b.styles.isFixed(name) {
		return b.styles.of(name)
	}
	return b.styles.of(s.Name)
}

// base is where bars stand: at 0, at the bottom of a logarithmic axis.
func (b *barChart) base(c draw.Canvas) vg.Length {
	if b.panel.Y.Log {
		return c.Min.Y
	}
	return b.y(c, 0)
}

func (b *barChart) drawOurs(c draw.Canvas, look look, v Value, x, slot vg.Length) {
	top := b.limit(c)
	end := b.draw(c, look.pattern, look.colour, false, v.Mean, x, slot)
	if v.SD > 0 && v.Seeds > 1 {
		high := b.y(c, v.Mean+v.SD)
		whisker(c, x+slot/2, b.y(c, v.Mean-v.SD), high, c.Min.Y, top, stroke(ground, 3.2))
		whisker(c, x+slot/2, b.y(c, v.Mean-v.SD), high, c.Min.Y, top, stroke(ink, 1.2))
		end = max(end, min(high, top))
	}
	b.label(c, short(v.Mean), x+slot/2, end)
}

func (b *barChart) drawPaper(c draw.Canvas, look look, paper Range, x, slot vg.Length) {
	end := b.draw(c, rising, look.colour, true, paper.High, x, slot)
	if low := b.y(c, paper.Low); paper.Low != paper.High && !b.panel.cuts(paper.Low) {
		c.StrokeLine2(stroke(ink, 1.6), x, low, x+slot, low)
	}
	b.label(c, paper.short(), x+slot/2, end)
}

// draw draws a bar and returns the height above which its label has room.
func (b *barChart) draw(c draw.Canvas, p pattern, colour color.NRGBA, hollow bool, v float64, x, slot vg.Length) vg.Length {
	top, base := b.limit(c), b.base(c)
	end := min(b.y(c, v), top)
	r := vg.Rectangle{Min: vg.Point{X: x + 1, Y: min(base, end)}, Max: vg.Point{X: x + slot - 1, Y: max(base, end)}}
	p.fill(c, r, colour, hollow)
	if b.panel.cuts(v) {
		arrow(c, x+slot/2, top, colour, hollow)
		return top + arrowRoom - 2
	}
	return r.Max.Y
}

func (b *barChart) label(c draw.Canvas, s string, x, y vg.Length) {
	at := vg.Point{X: x, Y: y + 3}
	box := b.labels.Rectangle(s).Add(at)
	if b.labels.Rotation != 0 {
		at.X -= b.labels.FontExtents().Descent
	} else {
		box = vg.Rectangle{Min: vg.Point{X: x - b.labels.Width(s)/2, Y: y + 2}, Max: vg.Point{X: x + b.labels.Width(s)/2, Y: y + 2 + b.labels.Height(s)}}
	}
	c.SetColor(ground) // no line of the grid through it
	c.Fill(box.Path())
	c.FillText(b.labels, at, s)
}

func (b Bars) samples(s *styles) []sample {
	var all []sample
	paper := false
	for _, series := range b.Series {
		look := s.of(series.Name)
		all = append(all, sample{series.Name, func(c draw.Canvas) {
			look.pattern.fill(c, swatch(c), look.colour, false)
		}})
		paper = paper || series.fromPaper()
	}
	if paper {
		colour := muted
		if len(b.Series) == 1 {
			colour = s.of(b.Series[0].Name).colour
		}
		all = append(all, sample{paperName, func(c draw.Canvas) { rising.fill(c, swatch(c), colour, true) }})
	}
	return all
}

func swatch(c draw.Canvas) vg.Rectangle {
	m := c.Center()
	return vg.Rectangle{Min: vg.Point{X: c.Min.X + 1, Y: m.Y - 6.5}, Max: vg.Point{X: c.Max.X - 5, Y: m.Y + 6.5}}
}

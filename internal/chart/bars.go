package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	barShare = 0.84 // of a group, the rest is air
	widest   = 46   // bar
)

// draw adds the bars of each group, the paper's beside ours. A group is 1 wide on the x axis.
func (b Bars) draw(f *frame) {
	slots := 0
	for _, s := range b.Series {
		slots++
		f.explain(s.Name, &bar{look: f.styles.of(s.Name)})
		if s.fromPaper() {
			slots++
		}
	}
	for _, s := range b.Series {
		if s.fromPaper() {
			look := look{colour: muted}
			if len(b.Series) == 1 {
				look = f.styles.of(s.Name)
			}
			f.explain(paperName, &bar{look: look.paper(), hollow: true})
		}
	}
	f.setGroups(b.Groups, "")
	group := f.width / vg.Length(len(b.Groups))
	width := min(widest/float64(group), barShare/float64(slots))
	labels := b.labels(vg.Length(width)*group - 1)
	for i := range b.Groups {
		x := float64(i) - width*float64(slots-1)/2
		for _, s := range b.Series {
			v, look := s.Values[i], f.styles.ofBar(b, i, s)
			f.addBar(x, width, v.Mean, look, false)
			for _, style := range []draw.LineStyle{stroke(ground, 3.2), stroke(ink, 1.2)} {
				spread := f.spreads(style)
				spread.add(plotter.XY{X: x, Y: f.y(v.Mean)}, v)
				f.Add(spread)
			}
			top := v.Mean
			if v.Seeds > 1 {
				top += v.SD
			}
			f.addLabel(labels, x, top, short(v.Mean), f.panel.cuts(v.Mean))
			x += width
			if !s.fromPaper() {
				continue
			}
			if p := v.Paper; p != nil {
				f.addBar(x, width, p.High, look.paper(), true)
				if p.Low != p.High {
					low := plotter.XYs{{X: x - width/2, Y: f.y(p.Low)}, {X: x + width/2, Y: f.y(p.Low)}}
					f.Add(&plotter.Line{XYs: low, LineStyle: stroke(ink, 1.6)})
				}
				f.addLabel(labels, x, p.High, p.short(), f.panel.cuts(p.High))
			}
			x += width
		}
	}
	if !f.panel.Y.Log {
		f.Add(&plotter.Line{XYs: plotter.XYs{{X: -0.5}, {X: float64(len(b.Groups)) - 0.5}}, LineStyle: stroke(muted, 1)})
	}
}

func (s Series) fromPaper() bool {
	return slices.ContainsFunc(s.Values, func(v Value) bool { return v.Paper != nil })
}

// short is a range in two lines: a bar is narrow.
func (r Range) short() string {
	if r.Low == r.High {
		return short(r.Low)
	}
	return short(r.Low) + "–\n" + short(r.High)
}

// labels chooses the size in which the values above the bars have room, or turns them.
func (b Bars) labels(room vg.Length) text.Style {
	for _, size := range []vg.Length{tickSize, 11, leastText} {
		style := aligned(sans(size, false), text.XCenter, text.YBottom)
		if !slices.ContainsFunc(b.rows(), func(r row) bool {
			return style.Width(short(r.Mean)) > room || r.Paper != nil && style.Width(r.Paper.short()) > room
		}) {
			return style
		}
	}
	style := aligned(sans(11, false), text.XLeft, text.YCenter)
	style.Rotation = math.Pi / 2
	return style
}

// addLabel adds a number above a bar, or above the chevron of one that is cut.
func (f *frame) addLabel(style text.Style, x, top float64, s string, cut bool) {
	if f.panel.Y.Max > 0 {
		top = min(top, f.panel.Y.Max)
	}
	at := plotter.XY{X: x, Y: f.y(max(top, 0))}
	label := &plotter.Labels{XYs: plotter.XYs{at}, Labels: []string{s}, TextStyle: []text.Style{style}}
	label.Offset.Y = 3
	if style.Rotation != 0 {
		label.Offset.X = -style.FontExtents().Descent
	}
	if cut {
		label.Offset.Y += arrowRoom - 2
	}
	f.Add(label)
}

// A bar reaches from one value to another, around a place on the x axis.
type bar struct {
	x, width, from, to float64
	look               look
	hollow             bool   // the paper's
	text               string // in its middle, where there is room
}

// addBar adds a bar from 0, or from the bottom of a logarithmic axis, with a chevron if it is cut.
func (f *frame) addBar(x, width, value float64, look look, hollow bool) {
	f.Add(&bar{x: x, width: width, from: f.y(0), to: f.y(value), look: look, hollow: hollow})
	if f.panel.cuts(value) {
		f.addChevron(x, look.colour, hollow)
	}
}

func (b *bar) DataRange() (xmin, xmax, ymin, ymax float64) {
	return b.x, b.x, min(b.from, b.to), max(b.from, b.to)
}

func (b *bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	within := func(v float64) vg.Length { return min(max(y(v), c.Min.Y), c.Max.Y) }
	b.look.fill(c, vg.Rectangle{
		Min: vg.Point{X: x(b.x-b.width/2) + 1, Y: within(min(b.from, b.to))},
		Max: vg.Point{X: x(b.x+b.width/2) - 1, Y: within(max(b.from, b.to))},
	}, b.hollow, b.text)
}

func (b *bar) Thumbnail(c *draw.Canvas) {
	b.look.fill(*c, draw.Crop(*c, 1, -4, 1, -1).Rectangle, b.hollow, "")
}

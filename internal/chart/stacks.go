package chart

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const widestColumn = 1.6 * widest

type stackChart struct {
	*frame
	data Stacks
	pair float64 // from the middle of a column to that of its pair, on the x axis
}

func (s Stacks) plotter(f *frame) plotter {
	most := 0.
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
		most = max(most, c.sum(ours), c.sum(papers))
	}
	f.setY(0, most, arrowRoom)
	pair := min(0.21, float64((widestColumn+6)/2/(f.width/vg.Length(len(names)))))
	ticks := f.categories(names, "\n") // the line above is whose a column is
	for i, c := range s.Columns {
		at := float64(i)
		if !c.fromPaper() {
			ticks = append(ticks, plot.Tick{Value: at, Label: "ours"})
			continue
		}
		ticks = append(ticks, plot.Tick{Value: at - pair, Label: "ours"}, plot.Tick{Value: at + pair, Label: paperName})
	}
	f.plot.X.Tick.Marker = plot.ConstantTicks(ticks)
	return &stackChart{f, s, pair}
}

func (c Column) fromPaper() bool {
	return slices.ContainsFunc(c.Parts, func(v Value) bool { return v.Paper != nil })
}

// ours and papers are what a part has; the paper may print none.
func ours(v Value) (float64, bool) { return v.Mean, true }

func papers(v Value) (float64, bool) {
	if v.Paper == nil {
		return 0, false
	}
	return v.Paper.Low, true
}

func (c Column) sum(of func(Value) (float64, bool)) float64 {
	sum := 0.
	for _, part := range c.Parts {
		v, _ := of(part)
		sum += v
	}
	return sum
}

func (s *stackChart) Plot(c draw.Canvas, p *plot.Plot) {
	group := c.X(p.X.Norm(1)) - c.X(p.X.Norm(0))
	pair := group * vg.Length(s.pair)
	width := min(widestColumn, 2*pair-4)
	for i, column := range s.data.Columns {
		x := c.X(p.X.Norm(float64(i)))
		if !column.fromPaper() {
			s.drawColumn(c, column, ours, x, width)
			continue
		}
		s.drawColumn(c, column, ours, x-pair, width)
		s.drawColumn(c, column, papers, x+pair, width)
	}
}

func (s *stackChart) drawColumn(c draw.Canvas, column Column, of func(Value) (float64, bool), x, width vg.Length) {
	_, hollow := of(Value{})
	hollow = !hollow // the paper's
	top, sum := s.limit(c), 0.
	r := vg.Rectangle{Min: vg.Point{X: x - width/2}, Max: vg.Point{X: x + width/2}}
	for i, part := range column.Parts {
		v, has := of(part)
		if !has {
			continue
		}
		look := s.styles.of(s.data.Parts[i])
		r.Min.Y, r.Max.Y = min(s.y(c, sum), top), min(s.y(c, sum+v), top)
		look.pattern.fill(c, r, look.colour, hollow)
		inside(c, r, short(v))
		sum += v
	}
	r.Min.Y, r.Max.Y = s.y(c, 0), min(s.y(c, sum), top)
	if hollow {
		c.SetLineStyle(stroke(ink, 1.4, 4, 2.5))
		c.Stroke(r.Path())
	}
	if s.panel.cuts(sum) {
		arrow(c, x, top, ink, hollow)
	}
}

// inside writes a value in the middle of its part, on a ground of its own, where
// there is room. Where there is none the table has it.
func inside(c draw.Canvas, r vg.Rectangle, s string) {
	style := aligned(sans(11, false), text.XCenter, text.YCenter)
	half := style.Width(s)/2 + 2.5
	m := vg.Point{X: (r.Min.X + r.Max.X) / 2, Y: (r.Min.Y + r.Max.Y) / 2}
	const height = 13.
	if r.Max.Y-r.Min.Y < height+2 || r.Max.X-r.Min.X < 2*half {
		return
	}
	box := vg.Rectangle{Min: vg.Point{X: m.X - half, Y: m.Y - height/2}, Max: vg.Point{X: m.X + half, Y: m.Y + height/2}}
	c.SetColor(ground)
	c.Fill(box.Path())
	c.FillText(style, vg.Point{X: m.X, Y: m.Y + style.FontExtents().Descent}, s)
}

func (s Stacks) samples(st *styles) []sample {
	var all []sample
	for _, name := range s.Parts {
		look := st.of(name)
		all = append(all, sample{name, func(c draw.Canvas) {
			look.pattern.fill(c, swatch(c), look.colour, false)
		}})
	}
	return all
}

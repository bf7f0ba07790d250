package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	pf "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that the page maps to its own, so that a picture is light or dark with
// it. None is pure black, which SVG leaves out as its default.
var (
	ink    = color.NRGBA{0x1d, 0x1c, 0x1a, 0xff}
	muted  = color.NRGBA{0x56, 0x53, 0x4e, 0xff}
	grid   = color.NRGBA{0xdd, 0xda, 0xd4, 0xff}
	ground = color.NRGBA{0xff, 0xff, 0xff, 0xff}
)

// A look is how a series is drawn: any of its three says which series it is.
type look struct {
	colour  color.NRGBA
	dashes  []vg.Length
	corners []float64 // of the marker, as angles in turns; none: a circle
	pattern pattern
}

// looks are Okabe and Ito's colours without yellow, which white swallows.
var looks = [mostSeries + 1]look{
	{color.NRGBA{0x00, 0x72, 0xb2, 0xff}, nil, nil, solid},
	{color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, []vg.Length{7, 3}, square, stripes},
	{color.NRGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{2, 2.5}, triangle, dots},
	{color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, []vg.Length{9, 3, 2, 3}, diamond, bars},
	{color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, []vg.Length{4, 2}, pyramid, squares},
	{color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, []vg.Length{12, 3}, pentagon, falling},
	{ink, []vg.Length{9, 2.5, 2, 2.5, 2, 2.5}, upright, crossed},
	{color.NRGBA{0x7d, 0x78, 0x70, 0xff}, []vg.Length{1, 2}, flat, pale}, // of what is not Fixed
}

var (
	square   = []float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}
	diamond  = []float64{0, 1. / 4, 1. / 2, 3. / 4}
	triangle = []float64{1. / 4, 7. / 12, 11. / 12}
	pyramid  = []float64{3. / 4, 1. / 12, 5. / 12}
	pentagon = []float64{1. / 4, 9. / 20, 13. / 20, 17. / 20, 21. / 20}
	upright  = []float64{0.2, 0.3, 0.7, 0.8}
	flat     = []float64{0.05, 0.45, 0.55, 0.95}
)

// styles gives a series the same look in all panels of a figure, and names that are
// Fixed the same in all figures.
type styles struct {
	fixed []string
	looks map[string]int
}

func newStyles(f Figure) *styles {
	s := &styles{fixed: f.Fixed, looks: map[string]int{}}
	var shown, others []string
	for _, name := range append(f.series(), f.groups()...) {
		if at := slices.Index(f.Fixed, name); at >= 0 {
			s.looks[name] = at % mostSeries
			shown = append(shown, name)
		}
	}
	for _, name := range f.series() {
		if !slices.Contains(f.Fixed, name) {
			others = append(others, name)
		}
	}
	if len(shown) == 0 {
		for i, name := range others {
			s.looks[name] = i % mostSeries
		}
		return s
	}
	free := []int{mostSeries} // the neutral one first
	for i := range mostSeries {
		if !slices.ContainsFunc(shown, func(name string) bool { return s.looks[name] == i }) {
			free = append(free, i)
		}
	}
	for i, name := range others {
		s.looks[name] = free[i%len(free)]
	}
	return s
}

func (s *styles) of(name string) look { return looks[s.looks[name]] }

// isFixed says whether a bar's group has a look that is its own.
func (s *styles) isFixed(name string) bool { return slices.Contains(s.fixed, name) }

// Sizes of text, in points: one is a pixel of a picture 800 wide.
const (
	titleSize   = 17
	panelSize   = 14
	textSize    = 13
	tickSize    = 12
	captionSize = 12
	leastText   = 10.5
)

func sans(size vg.Length, bold bool) text.Style {
	f := pf.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = font.WeightBold
	}
	return text.Style{Color: ink, Font: f, Handler: plot.DefaultTextHandler}
}

func aligned(s text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	s.XAlign, s.YAlign = x, y
	return s
}

func stroke(c color.Color, width vg.Length, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width, Dashes: dashes}
}

// tint is a colour mixed with white.
func tint(c color.NRGBA, share float64) color.NRGBA {
	mix := func(v uint8) uint8 { return uint8(math.Round(share*float64(v) + (1-share)*255)) }
	return color.NRGBA{mix(c.R), mix(c.G), mix(c.B), 0xff}
}

// marker draws the point of a series: filled for ours, hollow for the paper's.
func (l look) marker(c draw.Canvas, at vg.Point, hollow bool) {
	radius, fill, edge := vg.Length(4.2), l.colour, stroke(ground, 0.8)
	if hollow {
		radius, fill, edge = 5.2, ground, stroke(l.colour, 1.7)
	}
	path := l.outline(at, radius)
	c.SetColor(fill)
	c.Fill(path)
	c.SetLineStyle(edge)
	c.Stroke(path)
}

func (l look) outline(at vg.Point, radius vg.Length) vg.Path {
	var path vg.Path
	if l.corners == nil {
		path.Move(vg.Point{X: at.X + radius, Y: at.Y})
		path.Arc(at, radius, 0, 2*math.Pi)
		path.Close()
		return path
	}
	for i, turn := range l.corners {
		sin, cos := math.Sincos(2 * math.Pi * turn)
		p := vg.Point{X: at.X + radius*1.15*vg.Length(cos), Y: at.Y + radius*1.15*vg.Length(sin)}
		if i == 0 {
			path.Move(p)
		} else {
			path.Line(p)
		}
	}
	path.Close()
	return path
}

// arrow points up from where something is cut: a chevron, which is no series' marker.
func arrow(c draw.Canvas, x, y vg.Length, colour color.Color, hollow bool) {
	var path vg.Path
	for i, p := range []vg.Point{{X: -5, Y: 0.5}, {X: 0, Y: 5}, {X: 5, Y: 0.5}, {X: 5, Y: 4.5}, {X: 0, Y: 9}, {X: -5, Y: 4.5}} {
		if p.X, p.Y = p.X+x, p.Y+y; i == 0 {
			path.Move(p)
		} else {
			path.Line(p)
		}
	}
	path.Close()
	if hollow {
		c.SetColor(ground)
		c.Fill(path)
		c.SetLineStyle(stroke(colour, 1.1))
		c.Stroke(path)
		return
	}
	c.SetColor(colour)
	c.Fill(path)
}

// whisker is the spread from low to high. An end that is cut is a tip.
func whisker(c draw.Canvas, x, low, high, bottom, top vg.Length, s draw.LineStyle) {
	from, to := max(low, bottom), min(high, top)
	if from >= to {
		return
	}
	c.StrokeLine2(s, x, from, x, to)
	end := func(y, tip vg.Length) {
		c.StrokeLines(s, []vg.Point{{X: x - 3, Y: y - tip}, {X: x, Y: y}, {X: x + 3, Y: y - tip}})
	}
	end(from, cutTip(low < bottom, -4))
	end(to, cutTip(high > top, 4))
}

func cutTip(cut bool, tip vg.Length) vg.Length {
	if cut {
		return tip
	}
	return 0
}

// hex writes a colour as the SVG backend does.
type hex color.NRGBA

func (h hex) String() string { return fmt.Sprintf("#%02X%02X%02X", h.R, h.G, h.B) }

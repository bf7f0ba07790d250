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
var looks = [mostSeries]look{
	{color.NRGBA{0x00, 0x72, 0xb2, 0xff}, nil, nil, solid},
	{color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, []vg.Length{7, 3}, square, stripes},
	{color.NRGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{2, 2.5}, triangle, dots},
	{color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, []vg.Length{9, 3, 2, 3}, diamond, bars},
	{color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, []vg.Length{4, 2}, pyramid, squares},
	{color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, []vg.Length{12, 3}, pentagon, falling},
	{ink, []vg.Length{9, 2.5, 2, 2.5, 2, 2.5}, upright, crossed},
}

var (
	square   = []float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}
	diamond  = []float64{0, 1. / 4, 1. / 2, 3. / 4}
	triangle = []float64{1. / 4, 7. / 12, 11. / 12}
	pyramid  = []float64{3. / 4, 1. / 12, 5. / 12}
	pentagon = []float64{1. / 4, 9. / 20, 13. / 20, 17. / 20, 21. / 20}
	upright  = []float64{0.2, 0.3, 0.7, 0.8}
)

// styles gives a series the same look in all panels of a figure.
type styles struct{ names []string }

func (s *styles) of(name string) look { return looks[max(0, slices.Index(s.names, name))%mostSeries] }

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

// arrow points up from where something is cut.
func arrow(c draw.Canvas, x, y vg.Length, colour color.Color, hollow bool) {
	var path vg.Path
	path.Move(vg.Point{X: x - 4.5, Y: y + 1.5})
	path.Line(vg.Point{X: x, Y: y + 9})
	path.Line(vg.Point{X: x + 4.5, Y: y + 1.5})
	path.Close()
	if hollow {
		c.SetColor(ground)
		c.Fill(path)
		c.SetLineStyle(stroke(colour, 1.3))
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

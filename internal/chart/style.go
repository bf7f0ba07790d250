package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

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
	hatch   string    // of bars, as matplotlib writes it; none: filled
}

const (
	dots       = "."
	paperHatch = "/" // and nothing else's
)

// looks are Okabe and Ito's colours without yellow, which white swallows.
var looks = [mostSeries + 1]look{
	{color.NRGBA{0x00, 0x72, 0xb2, 0xff}, nil, nil, ""},
	{color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, []vg.Length{7, 3}, square, "-"},
	{color.NRGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{2, 2.5}, triangle, dots},
	{color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, []vg.Length{9, 3, 2, 3}, diamond, "|"},
	{color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, []vg.Length{4, 2}, pyramid, "+"},
	{color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, []vg.Length{12, 3}, pentagon, `\`},
	{ink, []vg.Length{9, 2.5, 2, 2.5, 2, 2.5}, upright, "x"},
	{color.NRGBA{0x7d, 0x78, 0x70, 0xff}, []vg.Length{1, 2}, flat, " "}, // of what is not Fixed
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

// ofBar is the look of the series, or, where there is one series, that of a group that is Fixed.
func (s *styles) ofBar(b Bars, group int, series Series) look {
	if name := b.Groups[group]; len(b.Series) == 1 && slices.Contains(s.fixed, name) {
		return s.of(name)
	}
	return s.of(series.Name)
}

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

// line is how the lines of a series are drawn.
func (l look) line() draw.LineStyle { return stroke(l.colour, 1.8, l.dashes...) }

// marker is the point of a series: filled for ours, hollow for the paper's.
func (l look) marker(hollow bool) draw.GlyphStyle {
	style := draw.GlyphStyle{Color: l.colour, Radius: 4.2, Shape: marker{l.corners, hollow}}
	if hollow {
		style.Radius = 5.2
	}
	return style
}

type marker struct {
	corners []float64 // angles in turns; none: a circle
	hollow  bool
}

func (m marker) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	var path vg.Path
	for i, turn := range m.corners {
		sin, cos := math.Sincos(2 * math.Pi * turn)
		p := at.Add(vg.Point{X: vg.Length(cos), Y: vg.Length(sin)}.Scale(1.15 * s.Radius))
		if i == 0 {
			path.Move(p)
		} else {
			path.Line(p)
		}
	}
	if m.corners == nil {
		path.Move(at.Add(vg.Point{X: s.Radius}))
		path.Arc(at, s.Radius, 0, 2*math.Pi)
	}
	path.Close()
	fillAndStroke(*c, path, s.Color, m.hollow, 1.7)
}

// fillAndStroke draws a shape in its colour with a light edge, a hollow one the other way.
func fillAndStroke(c draw.Canvas, path vg.Path, colour color.Color, hollow bool, width vg.Length) {
	fill, edge := colour, stroke(ground, 0.8)
	if hollow {
		fill, edge = ground, stroke(colour, width)
	}
	c.SetColor(fill)
	c.Fill(path)
	c.SetLineStyle(edge)
	c.Stroke(path)
}

// paper is the look of the paper's bars.
func (l look) paper() look { return look{colour: l.colour, hatch: paperHatch} }

// fill draws a bar. One of the paper's is hollow. Its text is in the middle, if that has room.
func (l look) fill(c draw.Canvas, r vg.Rectangle, hollow bool, label string) {
	size := r.Size()
	if size.X <= 0 || size.Y <= 0 {
		return
	}
	below, line := tint(l.colour, 0.25), stroke(l.colour, 1.6)
	switch {
	case hollow && l.hatch != "":
		below, line.Width = ground, 1
	case !hollow && l.hatch == "":
		below = l.colour
	}
	if l.hatch == dots {
		line.Width, line.Dashes = 2.6, []vg.Length{2.6, 3.4}
	}
	c.Rectangle = r
	c.SetColor(below)
	c.Fill(r.Path())
	const step = 7
	var hatch [][]vg.Point
	for d := vg.Length(step) / 2; d < size.X+size.Y; d += step {
		left, right := vg.Point{X: r.Min.X, Y: r.Min.Y + d}, vg.Point{X: r.Max.X, Y: r.Min.Y + d}
		low, high := vg.Point{X: r.Min.X + d, Y: r.Min.Y}, vg.Point{X: r.Min.X + d, Y: r.Max.Y}
		back := vg.Point{X: -size.Y} // 45 degrees
		for _, h := range []struct {
			marks    string
			from, to vg.Point
		}{{"-+.", left, right}, {"|+", low, high}, {"/x", low.Add(back), high}, {"\\x", high.Add(back), low}} {
			if strings.ContainsAny(l.hatch, h.marks) {
				hatch = append(hatch, []vg.Point{h.from, h.to})
			}
		}
	}
	c.StrokeLines(line, c.ClipLinesXY(hatch...)...)
	c.SetLineStyle(stroke(l.colour, 1.2))
	c.Stroke(r.Path())
	style := aligned(sans(11, false), text.XCenter, text.YCenter)
	half := vg.Point{X: style.Width(label)/2 + 2.5, Y: 6.5}
	if label != "" && size.X > 2*half.X && size.Y > 2*half.Y+2 {
		c.SetColor(ground)
		c.Fill(vg.Rectangle{Min: c.Center().Sub(half), Max: c.Center().Add(half)}.Path())
		c.FillText(style, c.Center().Add(vg.Point{Y: style.FontExtents().Descent}), label)
	}
}

// hex writes a colour as the SVG backend does.
type hex color.NRGBA

func (h hex) String() string { return fmt.Sprintf("#%02X%02X%02X", h.R, h.G, h.B) }

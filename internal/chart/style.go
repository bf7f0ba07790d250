package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	pf "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that the page replaces by its own, so that a picture is light or dark with it. None is pure black,
// which SVG leaves out as its default.
var (
	ink    = color.NRGBA{0x1d, 0x1c, 0x1a, 0xff}
	muted  = color.NRGBA{0x56, 0x53, 0x4e, 0xff}
	grid   = color.NRGBA{0xdd, 0xda, 0xd4, 0xff}
	ground = color.NRGBA{0xff, 0xff, 0xff, 0xff}
)

// mostSeries is how many series have looks of their own.
const mostSeries = 7

// A look is how a series is drawn. The dashes, and most markers, distinguish series without colour.
type look struct {
	colour color.NRGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

// looks are Okabe and Ito's colours without yellow, which is hard to see on white.
var looks = [mostSeries + 1]look{
	{color.NRGBA{0x00, 0x72, 0xb2, 0xff}, nil, draw.CircleGlyph{}},
	{color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, []vg.Length{7, 3}, draw.BoxGlyph{}},
	{color.NRGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{2, 2.5}, draw.PyramidGlyph{}},
	{color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, []vg.Length{9, 3, 2, 3}, draw.CrossGlyph{}},
	{color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, []vg.Length{4, 2}, draw.PlusGlyph{}},
	{color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, []vg.Length{12, 3}, draw.SquareGlyph{}},
	{ink, []vg.Length{9, 2.5, 2, 2.5, 2, 2.5}, draw.TriangleGlyph{}},
	{color.NRGBA{0x7d, 0x78, 0x70, 0xff}, []vg.Length{1, 2}, draw.CircleGlyph{}}, // of what is not Fixed
}

// grey returns the look of what stands for all series.
func (l look) grey() look { return look{colour: muted, shape: l.shape} }

// line returns how the lines of a series are drawn.
func (l look) line() draw.LineStyle { return stroke(l.colour, 1.8, l.dashes...) }

// marker returns how the points of a series are drawn: the paper's as rings.
func (l look) marker(paper bool) draw.GlyphStyle {
	if paper {
		return draw.GlyphStyle{Color: l.colour, Radius: 5.2, Shape: draw.RingGlyph{}}
	}
	return draw.GlyphStyle{Color: l.colour, Radius: 3.6, Shape: l.shape}
}

// bar returns how the bars of a series are drawn: the paper's hollow.
func (l look) bar(paper bool) *plotter.Polygon {
	fill := tint(l.colour, 0.6)
	if paper {
		fill = ground
	}
	return &plotter.Polygon{Color: fill, LineStyle: stroke(l.colour, 1.4)}
}

// tint returns a colour mixed with white.
func tint(c color.NRGBA, share float64) color.NRGBA {
	mix := func(v uint8) uint8 { return uint8(math.Round(share*float64(v) + (1-share)*255)) }
	return color.NRGBA{mix(c.R), mix(c.G), mix(c.B), 0xff}
}

// styles gives a series the same look in all panels of a figure, and a Fixed name the same in all figures.
type styles struct {
	fixed []string
	looks map[string]int
}

func newStyles(f Figure) *styles {
	s := &styles{fixed: f.Fixed, looks: map[string]int{}}
	var shown []int
	for _, name := range append(f.series(), f.groups()...) {
		if at := slices.Index(f.Fixed, name); at >= 0 {
			s.looks[name] = at % mostSeries
			shown = append(shown, s.looks[name])
		}
	}
	var free []int
	if len(shown) > 0 {
		free = append(free, mostSeries) // the neutral one first
	}
	for i := range mostSeries {
		if !slices.Contains(shown, i) {
			free = append(free, i)
		}
	}
	for _, name := range f.series() {
		if _, known := s.looks[name]; !known {
			s.looks[name] = free[0]
			free = append(free[1:], free[0])
		}
	}
	return s
}

func (s *styles) of(name string) look { return looks[s.looks[name]] }

// ofBar returns the look of the series, or, if there is one series, that of a group that is Fixed.
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

// hex writes a colour as the SVG backend does.
type hex color.NRGBA

func (h hex) String() string { return fmt.Sprintf("#%02X%02X%02X", h.R, h.G, h.B) }

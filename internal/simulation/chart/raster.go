package chart

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pixels is the number of pixels of a point in a PNG.
const pixels = 2

// png returns the drawing as PNG.
func (d *drawing) png() ([]byte, error) {
	picture := image.NewRGBA(image.Rect(0, 0, int(math.Round(pixels*d.width)), int(math.Round(pixels*d.height))))
	draw.Draw(picture, picture.Bounds(), image.White, image.Point{}, draw.Src)
	for i := range d.shapes {
		s := &d.shapes[i]
		if s.fill != nil {
			paint(picture, s.fill, [][]point{s.points})
		}
		if s.stroke != nil {
			paint(picture, s.stroke, s.outline())
		}
	}
	for _, l := range d.labels {
		paint(picture, color.Black, l.outlines())
	}
	var b bytes.Buffer
	err := png.Encode(&b, picture)
	return b.Bytes(), err
}

// paint fills polygons. Where polygons overlap that run around in the same direction, the colour is that of one.
func paint(picture *image.RGBA, fill color.Color, polygons [][]point) {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, polygon := range polygons {
		for _, p := range polygon {
			low, high = point{min(low.x, p.x), min(low.y, p.y)}, point{max(high.x, p.x), max(high.y, p.y)}
		}
	}
	box := image.Rect(int(math.Floor(pixels*low.x)), int(math.Floor(pixels*low.y)), int(math.Ceil(pixels*high.x)),
		int(math.Ceil(pixels*high.y))).Intersect(picture.Bounds())
	if box.Empty() {
		return
	}
	r := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, polygon := range polygons {
		for i, p := range polygon {
			x, y := float32(pixels*p.x)-float32(box.Min.X), float32(pixels*p.y)-float32(box.Min.Y)
			if i == 0 {
				r.MoveTo(x, y)
			} else {
				r.LineTo(x, y)
			}
		}
		r.ClosePath()
	}
	r.Draw(picture, box, image.NewUniform(fill), image.Point{})
}

// outline returns polygons that cover the line of the shape. All run around in the same direction.
func (s *shape) outline() (polygons [][]point) {
	points := s.points
	if s.closed {
		points = append(points[:len(points):len(points)], points[0])
	}
	half := s.width / 2
	used := 0.0 // length of the line so far
	for i := range points[1:] {
		from, to := points[i], points[i+1]
		length := math.Hypot(to.x-from.x, to.y-from.y)
		if length == 0 {
			continue
		}
		along := point{(to.x - from.x) / length, (to.y - from.y) / length}
		for _, piece := range dashed(s.dashes, used, length) {
			a := point{from.x + along.x*piece[0], from.y + along.y*piece[0]}
			b := point{from.x + along.x*piece[1], from.y + along.y*piece[1]}
			side := point{-along.y * half, along.x * half}
			polygons = append(polygons, []point{{a.x + side.x, a.y + side.y}, {b.x + side.x, b.y + side.y},
				{b.x - side.x, b.y - side.y}, {a.x - side.x, a.y - side.y}})
		}
		if s.dashes == nil && (s.closed || i > 0) { // a round joint
			polygons = append(polygons, polygonAround(from, half, 8, 0))
		}
		used += length
	}
	return polygons
}

// dashed returns the parts of a piece of a line that dashes cover, from 0 to length. before is the length of the line
// before the piece.
func dashed(dashes []float64, before, length float64) (parts [][2]float64) {
	if dashes == nil {
		return [][2]float64{{0, length}}
	}
	for at, i := -before, 0; at < length; i++ {
		next := at + dashes[i%len(dashes)]
		if i%2 == 0 && next > 0 {
			parts = append(parts, [2]float64{max(at, 0), min(next, length)})
		}
		at = next
	}
	return parts
}

// polygonAround returns a regular polygon, which runs around as the polygons of outline do. At the angle 0 its first
// corner is above the center.
func polygonAround(center point, radius float64, corners int, angle float64) (polygon []point) {
	for i := range corners {
		s, c := math.Sincos(angle - 2*math.Pi*float64(i)/float64(corners))
		polygon = append(polygon, point{center.x + radius*s, center.y - radius*c})
	}
	return polygon
}

// Labels are measured and drawn in Go's font.
var typeface = func() *sfnt.Font {
	f, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		panic(err) // the font is part of the program
	}
	return f
}()

const unitsPerPoint = 64

// textWidth returns the width of a text in a PNG.
func textWidth(text string, size float64) float64 {
	var b sfnt.Buffer
	var width fixed.Int26_6
	for _, r := range text {
		width += advance(&b, r, size)
	}
	return float64(width) / unitsPerPoint
}

func advance(b *sfnt.Buffer, r rune, size float64) fixed.Int26_6 {
	index, _ := typeface.GlyphIndex(b, r) // an error leaves glyph 0, a box
	width, _ := typeface.GlyphAdvance(b, index, fixed.Int26_6(size*unitsPerPoint), font.HintingNone)
	return width
}

// outlines returns the outlines of the label's characters.
func (l *label) outlines() (polygons [][]point) {
	var b sfnt.Buffer
	offset := 0.0
	switch l.anchor {
	case middle:
		offset = -textWidth(l.text, l.size) / 2
	case end:
		offset = -textWidth(l.text, l.size)
	}
	for _, r := range l.text {
		place := func(p fixed.Point26_6) point {
			x, y := offset+float64(p.X)/unitsPerPoint, float64(p.Y)/unitsPerPoint
			if l.vertical {
				x, y = y, -x
			}
			return point{l.place.x + x, l.place.y + y}
		}
		index, _ := typeface.GlyphIndex(&b, r)
		segments, err := typeface.LoadGlyph(&b, index, fixed.Int26_6(l.size*unitsPerPoint), nil)
		if err == nil { // Go's font has no glyph in colours
			polygons = append(polygons, flatten(segments, place)...)
		}
		offset += float64(advance(&b, r, l.size)) / unitsPerPoint
	}
	return polygons
}

// flatten returns the outline of a glyph as polygons.
func flatten(segments sfnt.Segments, place func(fixed.Point26_6) point) (polygons [][]point) {
	const pieces = 6 // of a curve
	for _, s := range segments {
		if s.Op == sfnt.SegmentOpMoveTo {
			polygons = append(polygons, []point{place(s.Args[0])})
			continue
		}
		last := &polygons[len(polygons)-1]
		from := (*last)[len(*last)-1]
		if s.Op == sfnt.SegmentOpLineTo {
			*last = append(*last, place(s.Args[0]))
			continue
		}
		// Go's font has quadratic curves.
		control, to := place(s.Args[0]), place(s.Args[1])
		for i := 1; i <= pieces; i++ {
			t := float64(i) / pieces
			u := 1 - t
			*last = append(*last, point{u*u*from.x + 2*u*t*control.x + t*t*to.x, u*u*from.y + 2*u*t*control.y + t*t*to.y})
		}
	}
	return polygons
}

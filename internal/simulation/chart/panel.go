package chart

import (
	"image/color"
	"math"
	"slices"
)

var (
	gray  = color.Gray{0xb0}
	black = color.Black
)

// A frame is a panel that is drawn. The marks of its data are drawn when the scales are known.
type frame struct {
	*picture
	panel   Panel
	minimum float64 // smallest number of the panel, for a logarithmic axis
	x, y    scale
	groups  []string // names at 0, 1, ... of the x axis; nil: the x axis has numbers
	marks   []func(a *area)
}

// An area is where the data of a frame are drawn.
type area struct {
	*drawing
	left, top, right, bottom float64
	x, y                     scale
}

func (a *area) position(x, y float64) point {
	return point{a.left + a.x.place(x)*(a.right-a.left), a.bottom - a.y.place(y)*(a.bottom-a.top)}
}

func (f *frame) mark(m func(a *area)) { f.marks = append(f.marks, m) }

// include extends both scales.
func (f *frame) include(x float64, y ...float64) {
	f.x.include(x)
	for _, v := range y {
		f.y.include(v)
	}
}

// setScales completes the scales when all data are included.
func (f *frame) setScales() {
	if f.groups != nil {
		f.x.min, f.x.max = -0.5, float64(len(f.groups))-0.5
	}
	f.x.widen()
	f.y.min = min(0, f.y.min)
	if f.panel.Y.Log {
		f.y.log = true
		f.y.min, f.y.max = decades(f.minimum, f.y.max)
	}
	if f.panel.Y.Max > f.y.min {
		f.y.max = f.panel.Y.Max
	}
	f.y.widen()
}

// addLine adds a line. What is beyond the ends of the y axis is cut off.
func (f *frame) addLine(points []point, stroke color.Color, width float64, dashes []float64) {
	for _, p := range points {
		f.include(p.x, p.y)
	}
	f.mark(func(a *area) {
		var line []point
		flush := func() {
			if len(line) > 1 {
				a.add(shape{points: line, stroke: stroke, width: width, dashes: dashes})
			}
			line = nil
		}
		for i := range points[1:] {
			from, to, visible := a.cut(a.position(points[i].x, points[i].y), a.position(points[i+1].x, points[i+1].y))
			if !visible {
				flush()
				continue
			}
			if line == nil || line[len(line)-1] != from {
				flush()
				line = []point{from}
			}
			line = append(line, to)
		}
		flush()
	})
}

// cut returns the part of a line that is between the top and the bottom of the area.
func (a *area) cut(first, last point) (_, _ point, visible bool) {
	inside := func(p, other point) point {
		y := max(a.top, min(p.y, a.bottom))
		if y == p.y {
			return p
		}
		return point{p.x + (other.x-p.x)*(y-p.y)/(other.y-p.y), y}
	}
	if max(first.y, last.y) < a.top || min(first.y, last.y) > a.bottom {
		return first, last, false
	}
	return inside(first, last), inside(last, first), true
}

// addMarkers adds a marker at each point that is inside the area.
func (f *frame) addMarkers(points []point, look int, m marker) {
	for _, p := range points {
		f.include(p.x, p.y)
	}
	f.mark(func(a *area) {
		for _, p := range points {
			if a.y.contains(p.y) {
				a.add(m.shapes(a.position(p.x, p.y), colour(look))...)
			}
		}
	})
}

// addBar adds a bar from low to high, whose middle is at x.
func (f *frame) addBar(x, width, low, high float64, fill color.Color) {
	f.include(x, low, high)
	f.mark(func(a *area) {
		from, to := a.position(x-width/2, a.y.clamp(low)), a.position(x+width/2, a.y.clamp(high))
		a.add(bar(from.x, from.y, to.x, to.y, fill))
	})
}

func bar(left, bottom, right, top float64, fill color.Color) shape {
	return shape{points: rectangle(left, top, right, bottom), closed: true, fill: fill, stroke: black, width: 1}
}

// addSpread adds a whisker from low to high at a value. On a logarithmic axis, a whisker does not go below the smallest
// number of the panel or below a thousandth of its value.
func (f *frame) addSpread(x, value, low, high float64) {
	if f.panel.Y.Log {
		low = max(low, f.minimum, value/1000)
	}
	f.include(x, low, high)
	f.mark(func(a *area) {
		if high < a.y.min || low > a.y.max {
			return
		}
		const half = 2.5
		from, to := a.position(x, a.y.clamp(low)), a.position(x, a.y.clamp(high))
		a.add(shape{points: []point{from, to}, stroke: black, width: 1})
		for i, p := range []point{from, to} {
			if a.y.contains([]float64{low, high}[i]) {
				a.add(shape{points: []point{{p.x - half, p.y}, {p.x + half, p.y}}, stroke: black, width: 1})
			}
		}
	})
}

const (
	textSize  = 12
	smallSize = 10
	tickSize  = 8 // length of a tick with a text
)

// neededWidth returns the space to leave for a text. Browsers show an SVG in fonts that may be wider than Go's.
func neededWidth(text string) float64 { return 1.15 * textWidth(text, smallSize) }

// margins returns what the texts around the data need.
func (f *frame) margins(width float64) (left, bottom float64) {
	for _, t := range f.y.ticks() {
		left = max(left, neededWidth(t.text))
	}
	bottom = smallSize
	if f.vertical(width) {
		for _, g := range f.groups {
			bottom = max(bottom, neededWidth(g))
		}
	}
	return left + textSize + 4 + tickSize + 2, bottom + textSize + 8 + tickSize
}

// vertical reports whether the names of groups are too long to be beside each other in a width.
func (f *frame) vertical(width float64) bool {
	return slices.ContainsFunc(f.groups, func(n string) bool { return neededWidth(n) > width/float64(len(f.groups))-2 })
}

// draw draws the frame. The area is where its data are.
func (f *frame) draw(a *area) {
	center := (a.left + a.right) / 2
	f.drawYAxis(a)
	f.drawXAxis(a)
	if f.panel.Title != "" {
		a.write(label{f.panel.Title, point{center, a.top - 6}, textSize, middle, false})
	}
	for _, m := range f.marks {
		m(a)
	}
}

func (f *frame) drawYAxis(a *area) {
	const gap = 6 // between the axis and the data
	axis := func(points ...point) shape { return shape{points: points, stroke: black, width: 0.5} }
	width := 0.0
	for _, t := range a.y.ticks() {
		y, length := a.position(a.x.min, t.value).y, 0.5*tickSize
		if t.text != "" {
			length = tickSize
			a.add(shape{points: []point{{a.left, y}, {a.right, y}}, stroke: gray, width: 0.25})
			a.write(label{t.text, point{a.left - gap - tickSize - 2, y + smallSize/3}, smallSize, end, false})
			width = max(width, neededWidth(t.text))
		}
		a.add(axis(point{a.left - gap - length, y}, point{a.left - gap, y}))
	}
	a.add(axis(point{a.left - gap, a.top}, point{a.left - gap, a.bottom}))
	a.write(label{f.panel.Y.Title, point{a.left - gap - tickSize - width - 8, (a.top + a.bottom) / 2}, textSize, middle, true})
}

func (f *frame) drawXAxis(a *area) {
	const gap = 5
	height := float64(smallSize)
	if f.groups != nil {
		vertical := f.vertical(a.right - a.left)
		for i, g := range f.groups {
			x := a.position(float64(i), a.y.min).x
			if vertical {
				a.write(label{g, point{x + smallSize/3, a.bottom + gap}, smallSize, end, true})
				height = max(height, neededWidth(g))
			} else {
				a.write(label{g, point{x, a.bottom + gap + smallSize}, smallSize, middle, false})
			}
		}
	} else {
		axis := func(points ...point) shape { return shape{points: points, stroke: black, width: 0.5} }
		for _, t := range a.x.ticks() {
			x, length := a.position(t.value, a.y.min).x, 0.5*tickSize
			if t.text != "" {
				length = tickSize
				a.write(label{t.text, point{x, a.bottom + gap + tickSize + smallSize}, smallSize, middle, false})
			}
			a.add(axis(point{x, a.bottom + gap}, point{x, a.bottom + gap + length}))
		}
		a.add(axis(point{a.left, a.bottom + gap}, point{a.right, a.bottom + gap}))
		height += tickSize
	}
	a.write(label{f.panel.X, point{(a.left + a.right) / 2, a.bottom + gap + height + textSize + 2}, textSize, middle, false})
}

// A marker is the sign of a point of a line.
type marker struct {
	corners int // 0: two crossing lines
	radius  float64
	angle   float64 // of the first corner, or of the lines
	filled  bool
}

const round = 24 // corners of a circle

var (
	markers = []marker{{round, 3, 0, false}, {4, 3.5, math.Pi / 4, false}, {3, 4, 0, false}, {0, 3, math.Pi / 4, false},
		{0, 3, 0, false}, {round, 3, 0, true}, {4, 3.5, math.Pi / 4, true}, {3, 4, 0, true}}
	ring = marker{round, 5, 0, false}
)

func (m marker) shapes(center point, c color.Color) (all []shape) {
	if m.corners == 0 {
		for _, angle := range []float64{m.angle, m.angle + math.Pi/2} {
			s, c2 := math.Sincos(angle)
			all = append(all, shape{points: []point{{center.x - m.radius*s, center.y + m.radius*c2}, {center.x + m.radius*s, center.y - m.radius*c2}},
				stroke: c, width: 1})
		}
		return all
	}
	s := shape{points: polygonAround(center, m.radius, m.corners, m.angle), closed: true, stroke: c, width: 1}
	if m.filled {
		s.fill = c
	}
	return []shape{s}
}

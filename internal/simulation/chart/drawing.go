package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"strconv"
	"strings"
)

// A point is a place in a drawing. Its unit is a typographic point; y grows downwards.
type point struct{ x, y float64 }

// A shape is a polygon or a line.
type shape struct {
	points []point
	closed bool
	fill   color.Color // nil: not filled
	stroke color.Color // nil: no line
	width  float64     // of the line
	dashes []float64   // lengths of dashes and gaps, in turn; nil: a solid line
}

// A label is a line of text. place is the beginning, the middle or the end of its baseline, as anchor says. A vertical
// label is read from the bottom to the top.
type label struct {
	text     string
	place    point
	size     float64
	anchor   anchor
	vertical bool
}

type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

// A drawing has shapes and, in front of them, labels.
type drawing struct {
	width, height float64
	shapes        []shape
	labels        []label
}

func (d *drawing) add(s ...shape) { d.shapes = append(d.shapes, s...) }

func (d *drawing) write(l label) { d.labels = append(d.labels, l) }

// rectangle returns the corners of a rectangle.
func rectangle(left, top, right, bottom float64) []point {
	return []point{{left, top}, {right, top}, {right, bottom}, {left, bottom}}
}

// svg returns the drawing as SVG.
func (d *drawing) svg() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0"?>`+"\n"+`<svg xmlns="http://www.w3.org/2000/svg" width="%spt" height="%spt" viewBox="0 0 %[1]s %[2]s" `+
		`font-family="Helvetica, Arial, sans-serif">`+"\n", short(d.width), short(d.height))
	for i := range d.shapes {
		d.shapes[i].svg(&b)
	}
	for _, l := range d.labels {
		fmt.Fprintf(&b, `<text x="%s" y="%s" font-size="%s"`, short(l.place.x), short(l.place.y), short(l.size))
		if l.anchor != start {
			fmt.Fprintf(&b, ` text-anchor="%s"`, l.anchor)
		}
		if l.vertical {
			fmt.Fprintf(&b, ` transform="rotate(-90 %s %s)"`, short(l.place.x), short(l.place.y))
		}
		b.WriteByte('>')
		_ = xml.EscapeText(&b, []byte(l.text)) // a Buffer does not fail
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (s *shape) svg(b *bytes.Buffer) {
	b.WriteString(`<path d="`)
	for i, p := range s.points {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(short(p.x) + "," + short(p.y))
	}
	if s.closed {
		b.WriteByte('Z')
	}
	fmt.Fprintf(b, `" fill="%s"`, hex(s.fill))
	if s.stroke != nil {
		fmt.Fprintf(b, ` stroke="%s" stroke-width="%s"`, hex(s.stroke), short(s.width))
	}
	if s.dashes != nil {
		texts := make([]string, len(s.dashes))
		for i, d := range s.dashes {
			texts[i] = short(d)
		}
		fmt.Fprintf(b, ` stroke-dasharray="%s"`, strings.Join(texts, " "))
	}
	b.WriteString("/>\n")
}

// short formats a length with two digits after the point, or fewer if they are zeros.
func short(v float64) string {
	text := strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
	if text == "-0" {
		return "0"
	}
	return text
}

func hex(c color.Color) string {
	if c == nil {
		return "none"
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

package chart

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A pattern fills a bar, so that series differ without colour.
type pattern int

const (
	solid pattern = iota
	stripes
	dots
	bars
	squares
	falling
	crossed
	pale   // of what is not Fixed
	rising // the paper's, and nothing else's
)

// fill draws a bar. A bar of the paper's is hollow.
func (p pattern) fill(c draw.Canvas, r vg.Rectangle, colour color.NRGBA, hollow bool) {
	if r.Max.X <= r.Min.X || r.Max.Y <= r.Min.Y {
		return
	}
	below, edge := tint(colour, 0.25), stroke(colour, 1.2)
	line := stroke(colour, 1.6)
	if p == solid {
		below = colour
	}
	if hollow {
		below, line.Width = ground, 1
		if p == solid {
			below = tint(colour, 0.25)
		}
	}
	c.SetColor(below)
	c.Fill(r.Path())
	const step = 6
	switch p {
	case stripes, squares:
		for y := r.Min.Y + step/2; y < r.Max.Y; y += step {
			c.StrokeLine2(line, r.Min.X, y, r.Max.X, y)
		}
		if p == squares {
			for x := r.Min.X + step/2; x < r.Max.X; x += step {
				c.StrokeLine2(line, x, r.Min.Y, x, r.Max.Y)
			}
		}
	case bars:
		for x := r.Min.X + step/2; x < r.Max.X; x += step {
			c.StrokeLine2(line, x, r.Min.Y, x, r.Max.Y)
		}
	case dots:
		fillDots(c, r, colour, step)
	case falling:
		c.StrokeLines(line, diagonals(r, step*1.4, false)...)
	case rising:
		c.StrokeLines(line, diagonals(r, step*1.4, true)...)
	case crossed:
		c.StrokeLines(line, diagonals(r, step*1.6, false)...)
		c.StrokeLines(line, diagonals(r, step*1.6, true)...)
	}
	c.SetLineStyle(edge)
	c.Stroke(r.Path())
}

func fillDots(c draw.Canvas, r vg.Rectangle, colour color.Color, step vg.Length) {
	const radius = 1.3
	c.SetColor(colour)
	var path vg.Path
	for row, y := 0, r.Min.Y+step/2; y < r.Max.Y-radius; row, y = row+1, y+step {
		for x := r.Min.X + step/2 + vg.Length(row%2)*step/2; x < r.Max.X-radius; x += step {
			path.Move(vg.Point{X: x - radius, Y: y - radius})
			path.Line(vg.Point{X: x + radius, Y: y - radius})
			path.Line(vg.Point{X: x + radius, Y: y + radius})
			path.Line(vg.Point{X: x - radius, Y: y + radius})
			path.Close()
		}
	}
	if len(path) > 0 {
		c.Fill(path)
	}
}

// diagonals are lines of 45 degrees through a rectangle, cut at its edges.
func diagonals(r vg.Rectangle, step vg.Length, rises bool) [][]vg.Point {
	var all [][]vg.Point
	w, h := r.Max.X-r.Min.X, r.Max.Y-r.Min.Y
	for d := step / 2; d < w+h; d += step {
		// From the left edge or the upper one, down to the lower one or the right.
		a := vg.Point{X: max(0, d-h), Y: min(d, h)}
		b := vg.Point{X: min(d, w), Y: max(0, d-w)}
		if rises {
			a.Y, b.Y = h-a.Y, h-b.Y
		}
		all = append(all, []vg.Point{r.Min.Add(a), r.Min.Add(b)})
	}
	return all
}

package chart

import (
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A picture is 800 wide; its height is what its texts need.
const (
	pictureWidth = 800
	margin       = 16
	panelHeight  = 330
	between      = 22 // panels
	sampleWidth  = 36
	paperName    = "paper"
)

// A sample explains a mark in the legend.
type sample struct {
	name string
	draw func(draw.Canvas)
}

// A layout is a figure whose texts are broken into lines.
type layout struct {
	figure  Figure
	styles  *styles
	title   []string
	legend  [][]sample
	caption []string
	columns int
	height  vg.Length
}

func newLayout(f Figure) *layout {
	const room = pictureWidth - 2*margin
	l := &layout{figure: f, styles: newStyles(f), columns: min(len(f.Panels), 3)}
	if len(f.Panels) == 4 {
		l.columns = 2
	}
	l.title = lines(sans(titleSize, true), f.Title, room-badgeWidth(f.Kind)-12)
	l.caption = lines(sans(captionSize, false), f.caption(), room)
	l.legend = l.explain(room)
	rows := (len(f.Panels) + l.columns - 1) / l.columns
	l.height = l.above() + vg.Length(rows)*(panelHeight+between) + l.below()
	return l
}

func (l *layout) above() vg.Length {
	return margin + vg.Length(len(l.title))*titleSize*1.25 + 8 + vg.Length(len(l.legend))*textSize*1.6 + 10
}

func (l *layout) below() vg.Length { return vg.Length(len(l.caption))*captionSize*1.35 + margin }

// explain breaks the samples of all panels into rows, each once.
func (l *layout) explain(room vg.Length) [][]sample {
	var all []sample
	for _, p := range l.figure.Panels {
		for _, s := range p.Data.samples(l.styles) {
			if !slices.ContainsFunc(all, func(o sample) bool { return o.name == s.name }) {
				all = append(all, s)
			}
		}
	}
	var rows [][]sample
	left := vg.Length(0)
	for _, s := range all {
		w := s.width()
		if w > left {
			rows, left = append(rows, nil), room
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
		left -= w
	}
	return rows
}

func (s sample) width() vg.Length {
	return sampleWidth + 6 + sans(textSize, false).Width(s.name) + 18
}

// caption is what keeps a picture honest that is shown without its page.
func (f Figure) caption() string {
	all := []string{strings.ToUpper(string(f.Kind)) + ": " + f.Kind.meaning(f.Reference) + ".", "Runs: " + strings.TrimRight(f.Seeds, ".") + "."}
	if f.spread() {
		all = append(all, "Whiskers: ±1 standard deviation over the seeds.")
	}
	if f.cut() {
		all = append(all, "Chevrons: beyond the axis.")
	}
	return strings.Join(append(all, f.Note), " ")
}

// spread is whether there is a whisker.
func (f Figure) spread() bool {
	return slices.ContainsFunc(f.Panels, func(p Panel) bool {
		_, stacked := p.Data.(Stacks)
		return !stacked && slices.ContainsFunc(p.Data.rows(), func(r row) bool { return r.measured && r.SD > 0 && r.Seeds > 1 })
	})
}

// cut is whether something is beyond the end of its axis.
func (f Figure) cut() bool {
	return slices.ContainsFunc(f.Panels, func(p Panel) bool {
		if s, stacked := p.Data.(Stacks); stacked {
			return slices.ContainsFunc(s.Columns, func(c Column) bool { return p.cuts(c.sum(ours)) || p.cuts(c.sum(papers)) })
		}
		return slices.ContainsFunc(p.Data.rows(), func(r row) bool {
			switch {
			case !r.measured:
				return false
			case r.Seeds > 1 && r.SD > 0 && (p.cuts(r.Mean+r.SD) || p.Y.Log && r.Mean <= r.SD):
				return true
			default:
				return p.cuts(r.Mean) || r.Paper != nil && p.cuts(r.Paper.High)
			}
		})
	})
}

// drawOn draws the figure from the top down.
func (l *layout) drawOn(to vg.CanvasSizer) {
	c := draw.New(to)
	c.SetColor(ground)
	c.Fill(c.Path())
	style := aligned(sans(titleSize, true), text.XLeft, text.YTop)
	c.FillText(style, vg.Point{X: margin, Y: c.Max.Y - margin}, strings.Join(l.title, "\n"))
	drawBadge(c, l.figure.Kind)
	l.drawLegend(draw.Crop(c, margin, -margin, 0, -margin-vg.Length(len(l.title))*titleSize*1.25-8))
	l.drawPanels(draw.Crop(c, margin, -margin, l.below(), -l.above()))
	caption := aligned(sans(captionSize, false), text.XLeft, text.YTop)
	caption.Color = muted
	for i, line := range l.caption {
		c.FillText(caption, vg.Point{X: margin, Y: l.below() - vg.Length(i)*captionSize*1.35}, line)
	}
}

func badgeWidth(k Kind) vg.Length { return sans(11, true).Width(strings.ToUpper(string(k))) + 16 }

// drawBadge frames the kind, at the right end of the title.
func drawBadge(c draw.Canvas, k Kind) {
	at := vg.Rectangle{Min: vg.Point{X: c.Max.X - margin - badgeWidth(k), Y: c.Max.Y - margin - 20}, Max: vg.Point{X: c.Max.X - margin, Y: c.Max.Y - margin}}
	c.SetLineStyle(stroke(ink, 1.2))
	c.Stroke(at.Path())
	style := aligned(sans(11, true), text.XCenter, text.YCenter)
	c.FillText(style, vg.Point{X: (at.Min.X + at.Max.X) / 2, Y: (at.Min.Y+at.Max.Y)/2 + style.FontExtents().Descent}, strings.ToUpper(string(k)))
}

func (l *layout) drawLegend(c draw.Canvas) {
	style := aligned(sans(textSize, false), text.XLeft, text.YCenter)
	for i, samples := range l.legend {
		x, y := c.Min.X, c.Max.Y-(vg.Length(i)+0.5)*textSize*1.6
		for _, s := range samples {
			box := c
			box.Rectangle = vg.Rectangle{Min: vg.Point{X: x, Y: y - 8}, Max: vg.Point{X: x + sampleWidth, Y: y + 8}}
			s.draw(box)
			c.FillText(style, vg.Point{X: x + sampleWidth + 6, Y: y + style.FontExtents().Descent}, s.name)
			x += s.width()
		}
	}
}

// drawPanels draws them in rows, their data areas of one height.
func (l *layout) drawPanels(c draw.Canvas) {
	panels := l.figure.Panels
	tiles := draw.Tiles{Cols: l.columns, Rows: (len(panels) + l.columns - 1) / l.columns, PadX: between, PadY: between, PadBottom: between / 2}
	width := (c.Max.X-c.Min.X-between*vg.Length(l.columns-1))/vg.Length(l.columns) - 62
	plots := make([][]*plot.Plot, tiles.Rows)
	for i := range plots {
		plots[i] = make([]*plot.Plot, tiles.Cols)
	}
	marked := 0
	for _, p := range panels {
		if lines, is := p.Data.(Lines); is {
			marked = max(marked, len(lines.marked()))
		}
	}
	for i, p := range panels {
		f := &frame{panel: p, styles: l.styles, plot: plot.New(), width: width, height: panelHeight - 95, marked: marked}
		plots[i/l.columns][i%l.columns] = f.draft()
	}
	at := plot.Align(plots, tiles, c)
	for i := range panels {
		plots[i/l.columns][i%l.columns].Draw(at[i/l.columns][i%l.columns])
	}
}

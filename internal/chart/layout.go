package chart

import (
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A picture is 800 wide; its height follows from its texts.
const (
	pictureWidth = 800
	margin       = 16
	panelHeight  = 330
	between      = 22 // panels
	sampleWidth  = 36 // in the legend
	legendHeight = textSize * 1.6
	legendSpace  = 18 // between names
	captionLine  = captionSize * 1.35
	paperName    = "paper"
)

// A layout is a figure with the plots of its panels and its texts broken into lines.
type layout struct {
	figure         Figure
	styles         *styles
	title, caption string
	names          []string         // in the legend
	legends        [][]*plot.Legend // one for each name, in rows
	left           vg.Length        // free width of the last row
	plots          [][]*plot.Plot
	above, below   vg.Length // the panels
	height         vg.Length
	spread         bool // whether there are whiskers
}

func newLayout(f Figure) *layout {
	const inner = vg.Length(pictureWidth - 2*margin)
	l := &layout{figure: f, styles: newStyles(f)}
	columns := min(len(f.Panels), 3)
	if len(f.Panels) == 4 {
		columns = 2
	}
	width := (inner-between*vg.Length(columns-1))/vg.Length(columns) - 62
	for panels := range slices.Chunk(f.Panels, columns) {
		plots := make([]*plot.Plot, columns)
		for i, p := range panels {
			plots[i] = l.newPlot(p, width)
		}
		l.plots = append(l.plots, plots)
	}
	l.title = wrapped(sans(titleSize, true), f.Title, inner)
	l.caption = wrapped(sans(captionSize, false), l.captions(), inner)
	l.above = margin + sans(titleSize, true).Height(l.title) + 8 + vg.Length(len(l.legends))*legendHeight + 10
	l.below = vg.Length(1+strings.Count(l.caption, "\n"))*captionLine + margin
	l.height = l.above + vg.Length(len(l.plots))*(panelHeight+between) + l.below
	return l
}

// explain adds a name to the legend, once.
func (l *layout) explain(name string, samples ...plot.Thumbnailer) {
	if slices.Contains(l.names, name) {
		return
	}
	legend := plot.NewLegend()
	legend.TextStyle, legend.ThumbnailWidth, legend.Top, legend.Left = sans(textSize, false), sampleWidth, true, true
	legend.Add(name, samples...)
	width := legendWidth(&legend)
	if len(l.legends) == 0 || width > l.left {
		l.legends, l.left = append(l.legends, nil), pictureWidth-2*margin+legendSpace
	}
	last := len(l.legends) - 1
	l.names, l.legends[last], l.left = append(l.names, name), append(l.legends[last], &legend), l.left-width
}

func legendWidth(l *plot.Legend) vg.Length { return l.Rectangle(draw.Canvas{}).Size().X + legendSpace }

// captions returns what a reader must know who has the picture without its page.
func (l *layout) captions() string {
	f := l.figure
	all := []string{strings.ToUpper(string(f.Kind)) + ": " + f.Kind.meaning(f.Reference) + ".", "Runs: " +
		strings.TrimRight(f.Seeds, ".") + "."}
	if l.spread {
		all = append(all, "Whiskers: ±1 standard deviation over the seeds.")
	}
	if slices.ContainsFunc(f.Panels, Panel.cut) {
		all = append(all, "Some values are beyond the axis.")
	}
	return strings.Join(append(all, f.Note), " ")
}

// drawOn draws the figure from the top down.
func (l *layout) drawOn(to vg.CanvasSizer) {
	c := draw.New(to)
	c.SetColor(ground)
	c.Fill(c.Path())
	c.FillText(aligned(sans(titleSize, true), text.XLeft, text.YTop), vg.Point{X: margin, Y: c.Max.Y - margin}, l.title)
	for i, row := range l.legends {
		from := draw.Crop(c, margin, 0, 0, -l.above+10+legendHeight*vg.Length(len(l.legends)-i))
		for _, legend := range row {
			legend.Draw(from)
			from.Min.X += legendWidth(legend)
		}
	}
	tiles := draw.Tiles{Cols: len(l.plots[0]), Rows: 1, PadX: between}
	title := aligned(sans(panelSize, true), text.XCenter, text.YTop)
	for i, row := range l.plots {
		top := l.height - l.above - vg.Length(i)*(panelHeight+between)
		to := draw.Crop(c, margin, -margin, top-panelHeight, top-l.height)
		titleHeight := vg.Length(0)
		for j, p := range row {
			if at := tiles.At(to, j, 0); p != nil && p.Title.Text != "" {
				c.FillText(title, vg.Point{X: at.Center().X, Y: at.Max.Y}, p.Title.Text)
				titleHeight = max(titleHeight, title.Height(p.Title.Text)+8)
				p.Title.Text = "" // in plots of different heights gonum would draw it at different ones
			}
		}
		to.Max.Y -= titleHeight
		for j, at := range plot.Align([][]*plot.Plot{row}, tiles, to)[0] {
			if row[j] != nil {
				row[j].Draw(at)
			}
		}
	}
	caption := aligned(sans(captionSize, false), text.XLeft, text.YTop)
	caption.Color = muted
	for i, line := range strings.Split(l.caption, "\n") {
		c.FillText(caption, vg.Point{X: margin, Y: l.below - vg.Length(i)*captionLine}, line)
	}
}

// wrapped breaks a text at its spaces so that each line fits, as far as its words allow.
func wrapped(s text.Style, words string, width vg.Length) string {
	var b strings.Builder
	line := ""
	for word := range strings.FieldsSeq(words) {
		switch {
		case line == "":
			line = word
		case s.Width(line+" "+word) <= width:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = word
		}
	}
	return b.String() + line
}

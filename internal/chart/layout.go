package chart

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
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
	sampleWidth  = 36 // in the legend
	legendHeight = textSize * 1.6
	legendSpace  = 18 // between names
	captionLine  = captionSize * 1.35
	paperName    = "paper"
)

// A layout is a figure with the plots of its panels and its texts broken into lines.
type layout struct {
	figure           Figure
	styles           *styles
	title, caption   string
	names            []string         // in the legend
	legends          [][]*plot.Legend // one for each name, in rows
	left             vg.Length        // room in the last row
	plots            [][]*plot.Plot
	above, below     vg.Length // the panels
	height           vg.Length
	chevrons, spread bool // whether there are any
}

func newLayout(f Figure) *layout {
	const room = vg.Length(pictureWidth - 2*margin)
	l := &layout{figure: f, styles: newStyles(f)}
	columns := min(len(f.Panels), 3)
	if len(f.Panels) == 4 {
		columns = 2
	}
	width := (room-between*vg.Length(columns-1))/vg.Length(columns) - 62
	for panels := range slices.Chunk(f.Panels, columns) {
		plots := make([]*plot.Plot, columns)
		for i, p := range panels {
			plots[i] = (&frame{plot.New(), l, p, width, nil}).draft()
		}
		l.plots = append(l.plots, plots)
	}
	l.title = wrapped(sans(titleSize, true), f.Title, room)
	l.caption = wrapped(sans(captionSize, false), l.captions(), room)
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

// captions are what keeps a picture honest that is shown without its page.
func (l *layout) captions() string {
	f := l.figure
	all := []string{strings.ToUpper(string(f.Kind)) + ": " + f.Kind.meaning(f.Reference) + ".", "Runs: " + strings.TrimRight(f.Seeds, ".") + "."}
	if l.spread {
		all = append(all, "Whiskers: ±1 standard deviation over the seeds.")
	}
	if l.chevrons {
		all = append(all, "Chevrons: beyond the axis.")
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
		titleRoom := vg.Length(0)
		for j, p := range row {
			if at := tiles.At(to, j, 0); p != nil && p.Title.Text != "" {
				c.FillText(title, vg.Point{X: at.Center().X, Y: at.Max.Y}, p.Title.Text)
				titleRoom = max(titleRoom, title.Height(p.Title.Text)+8)
				p.Title.Text = "" // plots of different heights would have it at different ones
			}
		}
		to.Max.Y -= titleRoom
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

// A frame is a panel on its way into a plot.
type frame struct {
	*plot.Plot
	*layout
	panel  Panel
	width  vg.Length   // about what the data have, for what must be known before
	arrows []vg.Length // where there are chevrons
}

func (f *frame) draft() *plot.Plot {
	f.BackgroundColor = nil
	f.Title.Text = wrapped(sans(panelSize, true), f.panel.Title, f.width)
	f.setAxis(&f.X, f.panel.X.Title, f.width, f.panel.X.Log, int(f.width/55))
	f.setAxis(&f.Y, f.panel.Y.Title, panelHeight-95, f.panel.Y.Log, 6)
	f.Add(&plotter.Grid{Horizontal: stroke(grid, 0.8)})
	f.panel.Data.draw(f)
	if f.panel.X.Log {
		f.X.Min = math.Floor(f.X.Min)
		f.X.Max = max(f.X.Max, f.X.Min+1)
	} else if f.X.Min >= 0 && f.X.Min < 0.3*f.X.Max {
		f.X.Min = 0
	}
	if f.panel.Y.Log {
		least, _ := extent(f.panel.Data.rows())
		f.Y.Min = math.Floor(math.Log10(least / 1.3))
		f.Y.Max = max(f.Y.Max, f.Y.Min+1)
	} else {
		f.Y.Min, f.Y.Max = min(0, f.Y.Min), max(0, f.Y.Max)
	}
	if f.panel.Y.Max > 0 {
		f.Y.Max = f.y(f.panel.Y.Max)
	}
	if f.Y.Max <= f.Y.Min {
		f.Y.Max = f.Y.Min + 1
	}
	return f.Plot
}

func (f *frame) setAxis(a *plot.Axis, title string, room vg.Length, log bool, labels int) {
	a.Label.Text = wrapped(sans(textSize, false), title, room)
	a.Label.TextStyle.Font = sans(textSize, false).Font
	a.Label.TextStyle.Color = ink
	a.Label.Padding = 6
	a.Tick.Label.Font = sans(tickSize, false).Font
	a.Tick.Label.Color = ink
	a.Tick.LineStyle = stroke(muted, 0.8)
	a.Tick.Length = 5
	a.LineStyle = stroke(muted, 1)
	a.Padding = 0
	a.Tick.Marker = ticks(labels)
	if log {
		a.Tick.Marker = logTicks{}
	}
}

// setGroups names the groups of bars or columns, at 0, 1, ... on the x axis. A name
// that is too long by itself makes all of them upright.
func (f *frame) setGroups(names []string, above string) []plot.Tick {
	f.X.Min, f.X.Max = -0.5, float64(len(names))-0.5
	f.X.Tick.LineStyle.Color = color.Transparent // room, but nothing to see
	style, room := &f.X.Tick.Label, f.width/vg.Length(len(names))-6
	label := func(name string) string { return wrapped(*style, name, room) }
	if slices.ContainsFunc(names, func(name string) bool { return style.Width(label(name)) > room }) {
		style.Rotation, style.XAlign, style.YAlign, room = math.Pi/2, text.XRight, text.YCenter, 90
	}
	most := 0
	for _, name := range names {
		most = max(most, strings.Count(label(name), "\n"))
	}
	var all []plot.Tick
	for i, name := range names {
		l := label(name)
		if style.Rotation == 0 { // gonum/plot centres a label of fewer lines unless it has as many
			l = above + l + strings.Repeat("\n ", most-strings.Count(l, "\n"))
		}
		all = append(all, plot.Tick{Value: float64(i), Label: l})
	}
	f.X.Tick.Marker = plot.ConstantTicks(all)
	return all
}

// at takes a point to where it is on the axes: itself, or its logarithm. A plot.LogScale puts the
// title of an axis where the mean of its ends is, and makes room for it there.
func (f *frame) at(x, y float64) plotter.XY {
	if f.panel.X.Log {
		x = math.Log10(x)
	}
	return plotter.XY{X: x, Y: f.y(y)}
}

func (f *frame) y(v float64) float64 {
	if f.panel.Y.Log {
		return math.Log10(max(v, 0))
	}
	return v
}

// logTicks marks an axis of decimal logarithms.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) []plot.Tick {
	// plot.LogTicks would round 10 to the low up, if that is a decade.
	all := plot.LogTicks{Prec: 6}.Ticks(math.Pow(10, low-1e-9), math.Pow(10, high))
	for i := range all {
		all[i].Value = math.Log10(all[i].Value)
	}
	return all
}

// ticks marks a linear axis at multiples of 1, 2 or 5 times a power of ten, with at most
// about as many labels. plot.DefaultTicks has three.
type ticks int

func (t ticks) Ticks(low, high float64) []plot.Tick {
	least := (high - low) / float64(max(1, t))
	step := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{2, 2.5, 2} {
		if step < least*(1-1e-9) {
			step *= m
		}
	}
	var all []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		all = append(all, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step+0, 'g', 6, 64)})
	}
	return all
}

// cuts is whether a value is beyond the end of the axis. Sums of shares are
// allowed their rounding.
func (p Panel) cuts(v float64) bool { return p.Y.Max > 0 && v > p.Y.Max*(1+1e-6) }

// A chevron is above the end of the axis, where a value is beyond it.
type chevron struct {
	f      *frame
	x      float64
	colour color.Color
	hollow bool
}

func (f *frame) addChevron(x float64, colour color.Color, hollow bool) {
	f.chevrons = true
	f.Add(&chevron{f, x, colour, hollow})
}

func (v *chevron) Plot(c draw.Canvas, p *plot.Plot) {
	v.f.arrow(c, c.X(p.X.Norm(v.x)), v.colour, v.hollow)
}

func (v *chevron) GlyphBoxes(*plot.Plot) []plot.GlyphBox { return above(arrowRoom) }

// above is room above the data.
func above(height vg.Length) []plot.GlyphBox {
	return []plot.GlyphBox{{Y: 1, Rectangle: vg.Rectangle{Max: vg.Point{Y: height}}}}
}

// arrow draws a chevron, to the right of those that are where it would be: none is hidden.
func (f *frame) arrow(c draw.Canvas, x vg.Length, colour color.Color, hollow bool) {
	for slices.ContainsFunc(f.arrows, func(o vg.Length) bool { return math.Abs(float64(o-x)) < 9 }) {
		x += 3
	}
	f.arrows = append(f.arrows, x)
	var path vg.Path
	path.Move(vg.Point{X: x - 5, Y: c.Max.Y + 0.5})
	for _, p := range []vg.Point{{X: 0, Y: 5}, {X: 5, Y: 0.5}, {X: 5, Y: 4.5}, {X: 0, Y: 9}, {X: -5, Y: 4.5}} {
		path.Line(p.Add(vg.Point{X: x, Y: c.Max.Y}))
	}
	path.Close()
	fillAndStroke(c, path, colour, hollow, 1.1)
}

// A spread has the whiskers of values that have a deviation.
type spread struct {
	*plotter.YErrorBars
	f *frame
}

func (f *frame) spreads(s draw.LineStyle) spread {
	return spread{&plotter.YErrorBars{LineStyle: s, CapWidth: 6}, f}
}

func (s spread) add(at plotter.XY, v Value) {
	if v.SD > 0 && v.Seeds > 1 {
		s.f.spread = true
		s.XYs = append(s.XYs, at)
		low, high := s.f.y(v.Mean-v.SD), s.f.y(v.Mean+v.SD)
		if s.f.panel.Y.Log {
			low = max(low, -99) // not the logarithm of 0
		}
		s.YErrors = append(s.YErrors, struct{ Low, High float64 }{at.Y - low, high - at.Y})
	}
}

// wrapped breaks a text at its spaces so that each line has room, as far as its words allow.
func wrapped(s text.Style, words string, room vg.Length) string {
	var b strings.Builder
	line := ""
	for word := range strings.FieldsSeq(words) {
		switch {
		case line == "":
			line = word
		case s.Width(line+" "+word) <= room:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = word
		}
	}
	return b.String() + line
}

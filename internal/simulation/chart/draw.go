package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	pictureWidth = 800
	panelHeight  = 300
	margin       = 12
	lineHeight   = 18
)

// A picture is the drawing of a figure: title, legend, panels, and a line of text about its runs.
type picture struct {
	Figure
	legend plot.Legend
	named  []string // names in the legend
	plots  [][]*plot.Plot
	width  vg.Length // of the data of a panel, approximate
	height vg.Length
}

func newPicture(f Figure) *picture {
	p := &picture{Figure: f, legend: plot.NewLegend()}
	p.legend.Top, p.legend.Left, p.legend.Padding = true, true, 3
	columns := min(len(f.Panels), 3)
	if len(f.Panels) == 4 {
		columns = 2
	}
	p.width = pictureWidth/vg.Length(columns) - 70
	for panels := range slices.Chunk(f.Panels, columns) {
		row := make([]*plot.Plot, columns)
		for i, panel := range panels {
			row[i] = p.newPlot(panel)
		}
		p.plots = append(p.plots, row)
	}
	p.height = 3*margin + 2*lineHeight + p.legendHeight() + panelHeight*vg.Length(len(p.plots))
	return p
}

func (p *picture) legendHeight() vg.Length { return p.legend.Rectangle(draw.Canvas{}).Size().Y }

func (p *picture) newPlot(panel Panel) *plot.Plot {
	f := &frame{Plot: plot.New(), picture: p, panel: panel}
	f.Title.Text, f.X.Label.Text, f.Y.Label.Text = panel.Title, panel.X, panel.Y.Title
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	f.Add(grid)
	f.minimum = panel.minimum()
	panel.Data.draw(f)
	if f.Y.Min = min(0, f.Y.Min); panel.Y.Log {
		f.Y.Scale, f.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		f.Y.Min, f.Y.Max = decades(f.minimum, f.Y.Max)
	}
	if panel.Y.Max > f.Y.Min {
		f.Y.Max = panel.Y.Max
	}
	return f.Plot
}

func decades(low, high float64) (bottom, top float64) {
	power := math.Floor(math.Log10(low))
	return math.Pow(10, power), math.Pow(10, max(power+1, math.Ceil(math.Log10(high))))
}

func (p *picture) drawOn(canvas vg.CanvasSizer) {
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	style := text.Style{Font: plot.DefaultFont, YAlign: text.YTop, Handler: plot.DefaultTextHandler, Color: color.Black}
	style.Font.Size = 12
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Min.Y + style.Font.Size},
		strings.ToUpper(string(p.Kind))+". Runs: "+strings.TrimRight(p.Seeds, ".")+".")
	style.Font.Size = 15
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.Title)
	c = draw.Crop(c, 0, 0, lineHeight, -lineHeight)
	p.legend.Draw(c)
	c = draw.Crop(c, 0, 0, 0, -p.legendHeight()-margin)
	tiles := draw.Tiles{Cols: len(p.plots[0]), Rows: len(p.plots), PadX: margin, PadY: margin}
	for i, row := range plot.Align(p.plots, tiles, c) {
		for j, tile := range row {
			if p.plots[i][j] != nil {
				p.plots[i][j].Draw(tile)
			}
		}
	}
}

// svg returns the picture as SVG, and png as PNG with two pixels for each point.
func (p *picture) svg() ([]byte, error) {
	c := vgsvg.New(pictureWidth, p.height)
	p.drawOn(c)
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return []byte(printable(b.String())), err
}

func (p *picture) png() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(pictureWidth, p.height), vgimg.UseDPI(144))
	p.drawOn(c)
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// words describes the figure in a sentence for readers who cannot see it. The CSV has the numbers.
func (f Figure) words() string {
	var b strings.Builder
	for _, p := range f.Panels {
		if p.Title != "" {
			b.WriteString(p.Title + ": ")
		}
		fmt.Fprintf(&b, "%s against %s, for %s. ", p.Y.Title, p.X, strings.Join(p.Data.series(), ", "))
	}
	return b.String() + f.Note
}

// A frame is a panel that is drawn into a plot.
type frame struct {
	*plot.Plot
	*picture
	panel   Panel
	minimum float64 // smallest number of the panel, for a logarithmic axis
}

func (p Panel) minimum() float64 {
	minimum := math.Inf(1)
	for _, r := range p.Data.rows() {
		minimum = min(minimum, r.Mean)
		if r.Paper != nil {
			minimum = min(minimum, r.Paper.Low)
		}
	}
	return minimum
}

// look returns the index of the colour, dashes and marker of a name. A name has the same index in all panels of a
// figure. A name in Fixed has the same index in all figures with this list.
func (f Figure) look(name string) int {
	if i := slices.Index(f.Fixed, name); i >= 0 {
		return i
	}
	return len(f.Fixed) + max(0, slices.Index(f.series(), name))
}

func colour(look int) color.Color {
	all := slices.Concat(plotutil.DefaultColors, plotutil.DarkColors)
	return all[look%len(all)]
}

// explain adds a name to the legend, unless it is there already.
func (p *picture) explain(name string, samples ...plot.Thumbnailer) {
	if !slices.Contains(p.named, name) {
		p.named = append(p.named, name)
		p.legend.Add(name, samples...)
	}
}

// addSpread adds whiskers from low to high at the given values. On a logarithmic axis, a whisker does not go
// below the smallest number of the panel or below a thousandth of its value.
func (f *frame) addSpread(points plotter.XYs, low, high []float64) {
	bars := &plotter.YErrorBars{XYs: points, LineStyle: plotter.DefaultLineStyle, CapWidth: plotter.DefaultCapWidth}
	for i, p := range points {
		if f.panel.Y.Log {
			low[i] = max(low[i], f.minimum, p.Y/1000)
		}
		bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{p.Y - low[i], high[i] - p.Y})
	}
	if len(points) > 0 {
		f.Add(bars)
	}
}

func (f *frame) addDeviation(x float64, v Value) {
	if v.SD > 0 && v.Seeds > 1 {
		f.addSpread(plotter.XYs{{X: x, Y: v.Mean}}, []float64{v.Mean - v.SD}, []float64{v.Mean + v.SD})
	}
}

const paperName = "paper"

// draw adds the lines with their points and whiskers. The paper's points are rings.
func (l Lines) draw(f *frame) {
	for _, line := range l {
		look := f.look(line.Name)
		var ours plotter.XYs
		for _, p := range line.Points {
			ours = append(ours, plotter.XY{X: p.X, Y: p.Mean})
			f.addDeviation(p.X, p.Value)
			if p.Paper != nil {
				f.addPaper(plotter.XYs{{X: p.X, Y: p.Paper.Low}, {X: p.X, Y: p.Paper.High}}, look)
			}
		}
		drawn := &plotter.Line{XYs: ours, LineStyle: draw.LineStyle{Color: colour(look), Width: 1.5, Dashes: plotutil.Dashes(look)}}
		points := &plotter.Scatter{XYs: ours, GlyphStyle: draw.GlyphStyle{Color: colour(look), Radius: 3, Shape: plotutil.Shape(look)}}
		f.Add(drawn, points)
		f.explain(line.Name, drawn, points)
	}
}

func (f *frame) addPaper(ends plotter.XYs, look int) {
	rings := &plotter.Scatter{XYs: ends, GlyphStyle: draw.GlyphStyle{Color: colour(look), Radius: 5, Shape: draw.RingGlyph{}}}
	line := &plotter.Line{XYs: ends, LineStyle: draw.LineStyle{Color: colour(look), Width: 1}}
	f.Add(rings, line)
	f.explain(paperName, rings, line)
}

const barShare = 0.8

// draw adds the bars of each group, each with the paper's bar beside it if there is one. A group is 1 wide on the x
// axis.
func (b Bars) draw(f *frame) {
	f.setGroups(b.Groups)
	slots := 0
	for _, s := range b.Series {
		slots++
		if s.fromPaper() {
			slots++
		}
	}
	width, slot := barShare/float64(slots), 0
	for _, s := range b.Series {
		center := func(group int) float64 { return float64(group) + width*(float64(slot)-float64(slots-1)/2) }
		for i, v := range s.Values {
			name := s.Name
			if len(b.Series) == 1 && slices.Contains(f.Fixed, b.Groups[i]) {
				name = b.Groups[i]
			}
			f.explain(s.Name, f.addBar(center(i), width, v.Mean, colour(f.look(name)), nil))
			f.addDeviation(center(i), v)
		}
		slot++
		if !s.fromPaper() {
			continue
		}
		for i, v := range s.Values {
			if v.Paper == nil {
				continue
			}
			middle := (v.Paper.Low + v.Paper.High) / 2
			f.explain(paperName, f.addBar(center(i), width, middle, color.White, nil))
			if v.Paper.Low != v.Paper.High {
				f.addSpread(plotter.XYs{{X: center(i), Y: middle}}, []float64{v.Paper.Low}, []float64{v.Paper.High})
			}
		}
		slot++
	}
}

func (s Series) fromPaper() bool {
	return slices.ContainsFunc(s.Values, func(v Value) bool { return v.Paper != nil })
}

// setGroups labels the positions 0, 1, ... of the x axis with the names of groups or columns. Long labels are
// vertical.
func (f *frame) setGroups(names []string) {
	f.NominalX(names...)
	f.Y.Padding = 5 // NominalX leaves space for half of a name
	f.X.Min, f.X.Max = -0.5, float64(len(names))-0.5
	style := &f.X.Tick.Label
	if slices.ContainsFunc(names, func(n string) bool { return style.Width(n) > f.width/vg.Length(len(names)) }) {
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, text.XRight, text.YCenter
	}
}

// addBar adds a bar whose middle is at x. The bar stands on top of the bar below. If below is nil, it stands on the
// axis.
func (f *frame) addBar(x, width, height float64, fill color.Color, below *plotter.BarChart) *plotter.BarChart {
	bar := &plotter.BarChart{Values: plotter.Values{height}, XMin: x, Color: fill, LineStyle: plotter.DefaultLineStyle,
		Width: vg.Length(width) * f.width / vg.Length(f.X.Max-f.X.Min)}
	if below == nil && f.panel.Y.Log { // a logarithmic axis has no 0
		low, _ := decades(f.minimum, f.minimum)
		below = &plotter.BarChart{Values: plotter.Values{low}, XMin: x}
		bar.Values[0] -= low
	}
	if below != nil {
		bar.StackOn(below)
	}
	f.Add(bar)
	return bar
}

func (s Stacks) draw(f *frame) {
	var names []string
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	f.setGroups(names)
	for i, c := range s.Columns {
		x, width := float64(i), barShare/2
		if slices.ContainsFunc(c.Parts, func(v Value) bool { return v.Paper != nil }) {
			x -= width / 2
		}
		var ours, paper *plotter.BarChart
		for k, v := range c.Parts {
			fill := colour(f.look(s.Parts[k]))
			ours = f.addBar(x, width, v.Mean, fill, ours)
			f.explain(s.Parts[k], ours)
			if v.Paper != nil {
				paper = f.addBar(x+width*0.9, width*0.6, v.Paper.Low, fill, paper)
			}
		}
		if paper != nil {
			f.explain("paper: the narrow column")
		}
	}
}

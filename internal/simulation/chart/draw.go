package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
)

const (
	pictureWidth = 800
	panelHeight  = 300
	margin       = 12
	lineHeight   = 18
	legendHeight = 14 // of a name
	sampleWidth  = 20 // of the sample before a name
)

// A picture is the drawing of a figure: title, legend, panels, and a line of text about its runs.
type picture struct {
	Figure
	drawing
	legend []explained
}

// explained is a name of the legend, with its samples.
type explained struct {
	name  string
	draws []func(left, top float64) shape
}

func newPicture(f Figure) *picture {
	p := &picture{Figure: f}
	var frames []*frame
	for _, panel := range f.Panels {
		frames = append(frames, p.newFrame(panel))
	}
	columns := min(len(frames), 3)
	if len(frames) == 4 {
		columns = 2
	}
	rows := (len(frames) + columns - 1) / columns
	top := float64(margin + lineHeight + len(p.legend)*legendHeight + margin)
	p.width, p.height = pictureWidth, top+float64(rows*(panelHeight+margin)+lineHeight)
	p.add(shape{points: rectangle(0, 0, p.width, p.height), closed: true, fill: color.White})
	p.write(label{p.Title, point{margin, margin + 13}, 15, start, false})
	p.write(label{strings.ToUpper(string(p.Kind)) + ". Runs: " + strings.TrimRight(p.Seeds, ".") + ".",
		point{margin, p.height - margin}, textSize, start, false})
	for i, e := range p.legend {
		y := float64(margin + lineHeight + i*legendHeight)
		for _, sample := range e.draws {
			p.add(sample(margin, y+2))
		}
		p.write(label{e.name, point{margin + sampleWidth + 4, y + 11}, textSize, start, false})
	}
	tile := (p.width - margin*float64(columns+1)) / float64(columns)
	left, bottom := 0.0, 0.0 // equal in all panels, so that axes are in line
	for _, f := range frames {
		l, b := f.margins(tile - left)
		left, bottom = max(left, l), max(bottom, b)
	}
	for i, f := range frames {
		x, y := margin+float64(i%columns)*(tile+margin), top+float64(i/columns)*(panelHeight+margin)
		f.draw(&area{&p.drawing, x + left + 6, y + lineHeight, x + tile - 6, y + panelHeight - bottom, f.x, f.y})
	}
	return p
}

func (p *picture) newFrame(panel Panel) *frame {
	f := &frame{picture: p, panel: panel, x: noScale(), y: noScale(), minimum: panel.minimum()}
	panel.Data.draw(f)
	f.setScales()
	return f
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

var (
	colours = []color.RGBA{
		{241, 90, 96, 255}, {122, 195, 106, 255}, {90, 155, 212, 255}, {250, 167, 91, 255}, {158, 103, 171, 255},
		{206, 112, 88, 255}, {215, 127, 180, 255},
		{238, 46, 47, 255}, {0, 140, 72, 255}, {24, 90, 169, 255}, {244, 125, 35, 255}, {102, 44, 145, 255},
		{162, 29, 33, 255}, {180, 56, 148, 255},
	}
	dashes = [][]float64{nil, {6, 2}, {2, 2}, {1, 1}, {5, 2, 1, 2}, {10, 2, 2, 2, 2, 2, 2, 2}, {10, 2, 2, 2},
		{5, 2, 5, 2, 2, 2, 2, 2}, {4, 2, 4, 1, 1, 1, 1, 1, 1, 1}}
)

func colour(look int) color.Color { return colours[look%len(colours)] }

// explain adds a name to the legend, unless it is there already.
func (p *picture) explain(name string, samples ...func(left, top float64) shape) {
	if !slices.ContainsFunc(p.legend, func(e explained) bool { return e.name == name }) {
		p.legend = append(p.legend, explained{name, samples})
	}
}

// lineSample returns a sample of a line, and markerSamples one of its markers.
func lineSample(stroke color.Color, width float64, dashes []float64) func(left, top float64) shape {
	return func(left, top float64) shape {
		return shape{points: []point{{left, top + 5}, {left + sampleWidth, top + 5}}, stroke: stroke, width: width, dashes: dashes}
	}
}

func markerSamples(m marker, c color.Color) (samples []func(left, top float64) shape) {
	for i := range m.shapes(point{}, c) {
		samples = append(samples, func(left, top float64) shape { return m.shapes(point{left + sampleWidth/2, top + 5}, c)[i] })
	}
	return samples
}

func barSample(fill color.Color) func(left, top float64) shape {
	return func(left, top float64) shape { return bar(left, top+10, left+sampleWidth, top, fill) }
}

func (f *frame) addDeviation(x float64, v Value) {
	if v.SD > 0 && v.Seeds > 1 {
		f.addSpread(x, v.Mean, v.Mean-v.SD, v.Mean+v.SD)
	}
}

const paperName = "paper"

// draw adds the lines with their points and whiskers. The paper's points are rings.
func (l Lines) draw(f *frame) {
	for _, line := range l {
		look := f.look(line.Name)
		var ours []point
		for _, p := range line.Points {
			ours = append(ours, point{p.X, p.Mean})
			f.addDeviation(p.X, p.Value)
			if p.Paper != nil {
				f.addPaper([]point{{p.X, p.Paper.Low}, {p.X, p.Paper.High}}, look)
			}
		}
		m, dashes := markers[look%len(markers)], dashes[look%len(dashes)]
		f.addLine(ours, colour(look), 1.5, dashes)
		f.addMarkers(ours, look, m)
		f.explain(line.Name, append(markerSamples(m, colour(look)), lineSample(colour(look), 1.5, dashes))...)
	}
}

func (f *frame) addPaper(ends []point, look int) {
	f.addMarkers(ends, look, ring)
	f.addLine(ends, colour(look), 1, nil)
	f.explain(paperName, append(markerSamples(ring, colour(look)), lineSample(colour(look), 1, nil))...)
}

const barShare = 0.8

// draw adds the bars of each group, each with the paper's bar beside it if there is one. A group is 1 wide on the x
// axis.
func (b Bars) draw(f *frame) {
	f.groups = b.Groups
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
			f.addBar(center(i), width, f.foot(), v.Mean, colour(f.look(name)))
			f.explain(s.Name, barSample(colour(f.look(name))))
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
			f.addBar(center(i), width, f.foot(), middle, color.White)
			f.explain(paperName, barSample(color.White))
			if v.Paper.Low != v.Paper.High {
				f.addSpread(center(i), middle, v.Paper.Low, v.Paper.High)
			}
		}
		slot++
	}
}

func (s Series) fromPaper() bool {
	return slices.ContainsFunc(s.Values, func(v Value) bool { return v.Paper != nil })
}

// foot returns where bars begin.
func (f *frame) foot() float64 {
	if !f.panel.Y.Log {
		return 0
	}
	low, _ := decades(f.minimum, f.minimum) // a logarithmic axis has no 0
	return low
}

func (s Stacks) draw(f *frame) {
	for _, c := range s.Columns {
		f.groups = append(f.groups, c.Name)
	}
	for i, c := range s.Columns {
		x, width := float64(i), barShare/2
		printed := slices.ContainsFunc(c.Parts, func(v Value) bool { return v.Paper != nil })
		if printed {
			x -= width / 2
		}
		ours, paper := f.foot(), f.foot()
		for k, v := range c.Parts {
			fill := colour(f.look(s.Parts[k]))
			f.addBar(x, width, ours, ours+v.Mean, fill)
			f.explain(s.Parts[k], barSample(fill))
			ours += v.Mean
			if v.Paper != nil {
				f.addBar(x+width*0.9, width*0.6, paper, paper+v.Paper.Low, fill)
				paper += v.Paper.Low
			}
		}
		if printed {
			f.explain("paper: the narrow column")
		}
	}
}

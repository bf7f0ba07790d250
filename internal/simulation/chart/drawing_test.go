package chart

import (
	"bytes"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the PNG shows the shapes of the SVG. The first bar of the second figure, of 3 on an axis to 10, has its
// colour to three tenths of the height. The title is black on white.
func TestAPNGShowsWhatTheSVGShows(t *testing.T) {
	p := newPicture(small()[1])
	i := slices.IndexFunc(p.shapes, func(s shape) bool { return s.fill == colours[0] && s.points[3].y-s.points[0].y > 20 })
	require.Positive(t, i)
	bar := p.shapes[i].points
	data, err := p.png()
	require.NoError(t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	at := func(x, y float64) color.Color { return picture.At(int(pixels*x), int(pixels*y)) }
	require.Equal(t, colours[0], at(bar[0].x+5, bar[0].y+5))
	require.Equal(t, colours[0], at(bar[2].x-5, bar[2].y-5))
	require.Equal(t, color.RGBA{255, 255, 255, 255}, at(bar[0].x+5, bar[0].y-9))
	require.Equal(t, color.RGBA{0, 0, 0, 255}, at(bar[0].x, bar[0].y+9), "the outline")
	title := p.labels[0]
	dark := 0
	for x := title.place.x; x < title.place.x+textWidth(title.text, title.size); x += 0.5 {
		for y := title.place.y - title.size; y < title.place.y; y += 0.5 {
			if r, _, _, _ := at(x, y).RGBA(); r < 0x4000 {
				dark++
			}
		}
	}
	require.Greater(t, dark, 300)
}

func TestADashedLineContinuesInItsNextPiece(t *testing.T) {
	require.Equal(t, [][2]float64{{0, 10}}, dashed(nil, 5, 10))
	require.Equal(t, [][2]float64{{0, 6}, {8, 10}}, dashed([]float64{6, 2}, 0, 10))
	require.Equal(t, [][2]float64{{0, 4}, {6, 10}}, dashed([]float64{6, 2}, 10, 10))
	require.Equal(t, [][2]float64{{1, 7}, {9, 10}}, dashed([]float64{6, 2}, 7, 10))
	line := shape{points: []point{{0, 0}, {10, 0}, {15, 0}, {25, 0}}, width: 2, dashes: []float64{6, 6}}
	var ends [][2]float64
	for _, polygon := range line.outline() {
		ends = append(ends, [2]float64{polygon[0].x, polygon[1].x})
	}
	require.Equal(t, [][2]float64{{0, 6}, {12, 15}, {15, 18}, {24, 25}}, ends)
}

// Ensure that bars, lines and whiskers end at the end of an axis. The first two figures have values beyond it.
func TestWhatIsBeyondAnAxisIsCutOff(t *testing.T) {
	for _, f := range small()[:2] {
		p := newPicture(f)
		top, reached := p.height, 0
		for _, s := range p.shapes {
			if s.stroke == gray {
				top = min(top, s.points[0].y)
			}
		}
		for _, s := range p.shapes[slices.IndexFunc(p.shapes, func(s shape) bool { return s.stroke == gray }):] {
			for _, at := range s.points {
				require.GreaterOrEqual(t, at.y, top-ring.radius, "%s: %+v", f.Name, s)
				if at.y == top && s.stroke != gray {
					reached++
				}
			}
		}
		require.Greater(t, reached, 2, f.Name)
	}
}

func TestAnAxisHasTicksAtRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		scale scale
		texts string
		small int // ticks without a text
	}{
		{scale{0, 10, false}, "0 2 4 6 8 10", 15},
		{scale{0, 1, false}, "0.0 0.2 0.4 0.6 0.8 1.0", 15},
		{scale{0, 709, false}, "0 200 400 600", 0},
		{scale{-2, 13.4, false}, "0 5 10", 0},
		{scale{0, 2.3e7, false}, "0 5e+06 1e+07 1.5e+07 2e+07", 0},
		{scale{0.1, 100, true}, "0.1 1 10 100", 24},
	} {
		var texts []string
		small := 0
		for _, tick := range c.scale.ticks() {
			if tick.text == "" {
				small++
			} else {
				texts = append(texts, tick.text)
			}
		}
		require.Equal(t, c.texts, strings.Join(texts, " "))
		if c.small > 0 {
			require.Equal(t, c.small, small, c.texts)
		}
	}
}

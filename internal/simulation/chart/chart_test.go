package chart

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func small() []Figure {
	v := func(mean, sd float64, paper *Range) Value { return Value{mean, sd, 4, paper} }
	lines := Lines{
		{"first", []Point{{1, v(0.1, 0.02, nil)}, {2, v(0.5, 0.1, Printed(0.4))}, {3, v(3, 1, Printed(2))}}},
		{"second", []Point{{0.5, v(2, 0, nil)}, {1, v(0.2, 0, Between(0.3, 0.5))}, {2, v(0.95, 0.1, nil)}}},
	}
	bars := Bars{Groups: []string{"one", "two words"}, Series: []Series{
		{"first", []Value{v(3, 0.5, Printed(4)), v(9, 2, Between(5, 12))}},
		{"second", []Value{v(12, 1, nil), v(0, 0, nil)}},
	}}
	stacks := Stacks{Parts: []string{"low", "high"}, Columns: []Column{
		{"both", []Value{v(40, 1, Printed(45)), v(60, 1, Printed(70))}},
		{"ours alone", []Value{v(30, 1, nil), v(20, 1, nil)}},
	}}
	logarithmic := Bars{Groups: []string{"1", "256"},
		Series: []Series{{"ours", []Value{v(0.2, 0.3, nil), v(16, 3, Printed(9))}}}}
	y := YAxis{Title: "y (unit)"}
	figure := func(name string, k Kind, y YAxis, d Data) Figure {
		return Figure{Name: name, Title: "A <title> & more", Kind: k, Seeds: "seeds 1-4", Note: "A note.",
			Panels: []Panel{{X: "x (unit)", Y: y, Data: d}}}
	}
	return []Figure{
		figure("lines", Predicted, YAxis{Title: "y (unit)", Max: 1}, lines),
		figure("bars", Calibrated, YAxis{Title: "y (unit)", Max: 10}, bars),
		figure("stacks", Predicted, YAxis{Title: "share (%)", Max: 100}, stacks),
		figure("logarithmic", OrderOnly, YAxis{Title: "y (unit)", Log: true}, logarithmic),
		figure("plain", Predicted, y, Bars{Groups: []string{"a"}, Series: []Series{{"s", []Value{{-2, 0, 1, nil}}}}}),
	}
}

func drawn(t require.TestingT, f Figure) string {
	require.NoError(t, f.valid())
	return string(newPicture(f).svg())
}

func TestTheSameFiguresGiveTheSameBytes(t *testing.T) {
	for _, f := range small() {
		require.Equal(t, drawn(t, f), drawn(t, f))
	}
}

func TestAPNGHasTwoPixelsForEachPoint(t *testing.T) {
	p := newPicture(small()[1])
	data, err := p.png()
	require.NoError(t, err)
	c, err := png.DecodeConfig(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, 1600, c.Width)
	require.InDelta(t, 2*p.height, float64(c.Height), 1)
}

// Ensure that a picture contains its figure's title, kind (such as "predicted") and seeds (such as "seeds 1-4"). A
// reader must understand the picture without the page.
func TestAPictureSaysWhatItShows(t *testing.T) {
	for _, f := range small() {
		svg := texts(t, drawn(t, f))
		require.Contains(t, svg, f.Title, f.Name)
		require.Contains(t, svg, strings.ToUpper(string(f.Kind))+". Runs: "+f.Seeds, f.Name)
		require.Contains(t, svg, f.Panels[0].X, f.Name)
		require.Contains(t, svg, f.Panels[0].Y.Title, f.Name)
		for _, name := range f.series() {
			require.Contains(t, svg, name, f.Name)
		}
		require.Equal(t, f.Name != "stacks" && f.Name != "plain", strings.Contains(svg, " "+paperName+" "), f.Name)
	}
}

func texts(t *testing.T, svg string) string {
	t.Helper()
	var all []string
	in := ""
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.CharData:
			if in == "text" && strings.TrimSpace(string(token)) != "" {
				all = append(all, string(token))
			}
		case xml.EndElement:
			in = ""
		}
	}
}

func TestBadFiguresAreSaidAndNothingIsWritten(t *testing.T) {
	value := func(v Value) func(*Figure) {
		return func(f *Figure) { f.Panels[0].Data.(Bars).Series[0].Values[0] = v }
	}
	before := small()[:1] // of the bad figure, at first
	for says, bad := range map[string]func(*Figure){
		`series "first" at "one": the number NaN`:    value(Value{math.NaN(), 0, 1, nil}),
		`the number +Inf`:                            value(Value{1, math.Inf(1), 1, nil}),
		`the number 1e+300: an axis has numbers`:     value(Value{1e300, 0, 1, nil}),
		`the number -Inf`:                            value(Value{1, 1, 1, Printed(math.Inf(-1))}),
		`panel "": series "second" at "two words": `: func(f *Figure) { f.Panels[0].Y.Log = true },
		`there are no panels`:                        func(f *Figure) { f.Panels = nil },
		`series "s" has 1 values for 2 groups`: func(f *Figure) {
			f.Panels[0].Data = Bars{Groups: []string{"a", "b"}, Series: []Series{{"s", []Value{{Mean: 1}}}}}
		},
		`column "c" has 0 values for 1 parts`: func(f *Figure) {
			f.Panels[0].Data = Stacks{Parts: []string{"a"}, Columns: []Column{{Name: "c"}}}
		},
		`there are no numbers`: func(f *Figure) { f.Panels[0].Data = Lines{{"l", nil}} },
	} {
		f := small()[1]
		bad(&f)
		dir := filepath.Join(t.TempDir(), "figures")
		err := Write(dir, append(slices.Clip(before), f))
		before = nil
		require.ErrorIs(t, err, ErrFigure, says)
		require.ErrorContains(t, err, `figure "bars": `)
		require.ErrorContains(t, err, says)
		require.NoDirExists(t, dir, says)
	}
}

func TestUnprintableTextsAreReplaced(t *testing.T) {
	f := small()[1]
	f.Title = "a\x00b\xffc"
	require.Contains(t, texts(t, drawn(t, f)), "a\uFFFDb\uFFFDc")
}

func TestWhatIsInAFolderStays(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"mine.txt": "mine", "bars.svg": "old"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, Write(dir, small()[1:2]))
	require.Equal(t, []string{"bars.csv", "bars.png", "bars.svg", "index.html", "mine.txt"}, list(t, dir),
		"nothing of the making is left")
	svg, err := os.ReadFile(filepath.Join(dir, "bars.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "</svg>")

	require.Error(t, Write(filepath.Join(dir, "mine.txt"), small()), "a file is no folder")
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTheCSVHasEveryNumberDrawn(t *testing.T) {
	require.Equal(t, `panel,series,x,mean,sd,seeds,paper,paper_high
,first,1,0.1,0.02,4,,
,first,2,0.5,0.1,4,0.4,
,first,3,3,1,4,2,
,second,0.5,2,0,4,,
,second,1,0.2,0,4,0.3,0.5
,second,2,0.95,0.1,4,,
`, small()[0].table())
	require.Equal(t, `panel,series,x,mean,sd,seeds,paper,paper_high
,first,one,3,0.5,4,4,
,second,one,12,1,4,,
,first,two words,9,2,4,5,12
,second,two words,0,0,4,,
`, small()[1].table())
	f := small()[2]
	f.Panels[0].Title = `a "quoted", title`
	records, err := csv.NewReader(strings.NewReader(f.table())).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+2*2)
	require.Equal(t, []string{`a "quoted", title`, "low", "both", "40", "1", "4", "45", ""}, records[1])
}

func TestFixedNamesLookTheSameInEveryFigure(t *testing.T) {
	figure := func(names ...string) Figure {
		var l Lines
		for _, n := range names {
			l = append(l, Line{Name: n})
		}
		return Figure{Fixed: []string{"a", "b", "c"}, Panels: []Panel{{Data: l}}}
	}
	both, ours := figure("c", "other", "a"), figure("c")
	require.Equal(t, ours.look("c"), both.look("c"))
	looks := map[int]bool{both.look("a"): true, both.look("c"): true, both.look("other"): true}
	require.Len(t, looks, 3)
	require.NotEqual(t, colour(both.look("c")), colour(both.look("other")))
}

func TestALogarithmicAxisHasWholeDecades(t *testing.T) {
	for _, c := range [][4]float64{{2, 30, 1, 100}, {1, 1, 1, 10}, {0.02, 0.03, 0.01, 0.1}} {
		low, high := decades(c[0], c[1])
		require.InEpsilon(t, c[2], low, 1e-9)
		require.InEpsilon(t, c[3], high, 1e-9)
	}
}

func comparison() []Check {
	return []Check{
		{"Fig. 2, token states, Orca (Max)", "20.4 %", "19.80 %", "−0.60", "±2 points", true, Predicted, ""},
		{"Fig. 15, <b>Alpaca</b>", "9.79 %", "12.10 %", "+2.31", "±1 points", false, Calibrated, ""},
		{"Fig. 14, order", "a < b", "1 < 2", "", "order", true, OrderOnly, ""},
		{"Fig. 15, another shape", "9.79 %", "10.60 %", "+0.81", "±1 points", true, Explained, ""},
		{"Fig. 12, FasterTransformer", "22", "8", "−14", "", true, KnownMiss, ""},
	}
}

func TestTheChecksSayItInWords(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteTable(&b, comparison()))
	require.Equal(t, `ok     Fig. 2, token states, Orca (Max) (predicted)
       paper 20.4 %, ours 19.80 %, difference −0.60, tolerance ±2 points
MISS   Fig. 15, <b>Alpaca</b> (calibrated)
       paper 9.79 %, ours 12.10 %, difference +2.31, tolerance ±1 points
ok     Fig. 14, order (order only)
       paper a < b, ours 1 < 2, tolerance order
after  Fig. 15, another shape (explained)
       paper 9.79 %, ours 10.60 %, difference +0.81, tolerance ±1 points
known  Fig. 12, FasterTransformer (known miss)
       paper 22, ours 8, difference −14
predicted: 1 of 1 within their tolerance: nothing was fitted to the paper's values shown here
calibrated: 0 of 1 within their tolerance: constants were fitted to some of the paper's values shown here
order only: 1 of 1 within their tolerance: only the order of the values counts, not the values
explained: 1, not counted: found after the paper's values were compared, so it shows a cause and proves nothing
known miss: 1, not counted: farther from the paper than its tolerance, for a reason that is stated
`, b.String())
}

func TestAPageExplainsTheKindsItHas(t *testing.T) {
	f := small()[0]
	f.Kind = Simulated
	explained := func(checks ...Check) (all []string) {
		dir := t.TempDir()
		require.NoError(t, Write(dir, []Figure{f}, checks...))
		text, err := os.ReadFile(filepath.Join(dir, "index.html"))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`<dt><span class="kind [a-z-]+">([^<]*)</span></dt><dd>.`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return all
	}
	require.Equal(t, []string{"simulated"}, explained())
	require.Equal(t, []string{"predicted", "calibrated", "order only", "explained", "known miss", "simulated"},
		explained(comparison()...))
}

func ends(rows []row) (minimum, maximum float64) {
	minimum, maximum = math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		minimum, maximum = min(minimum, r.Mean), max(maximum, r.Mean)
	}
	return minimum, maximum
}

func TestWhatIsValidCanBeDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.Bool().Draw(t, "log")
		number := rapid.Float64Range(-maxSize, maxSize)
		if log {
			number = rapid.Map(rapid.Float64Range(-12, 12), func(p float64) float64 { return math.Pow(10, p) })
		}
		name := rapid.StringMatching(`[a-zA-Zäß<&"' ]{0,30}[a-z]`)
		value := rapid.Custom(func(t *rapid.T) Value {
			v := Value{number.Draw(t, "mean"), math.Abs(number.Draw(t, "sd")), rapid.IntRange(1, 9).Draw(t, "seeds"), nil}
			if rapid.Bool().Draw(t, "paper") {
				a, b := number.Draw(t, "low"), number.Draw(t, "high")
				v.Paper = Between(min(a, b), max(a, b))
			}
			return v
		})
		names := rapid.SliceOfNDistinct(name, 1, 7, rapid.ID[string]).Draw(t, "names")
		p := Panel{Title: name.Draw(t, "title"), X: name.Draw(t, "x"),
			Y: YAxis{Title: name.Draw(t, "y"), Log: log}}
		if rapid.Bool().Draw(t, "lines") {
			var l Lines
			for _, n := range names {
				line := Line{Name: n}
				for i := range rapid.IntRange(1, 12).Draw(t, "points") {
					line.Points = append(line.Points, Point{float64(i + 1), value.Draw(t, "value")})
				}
				l = append(l, line)
			}
			p.Data = l
		} else {
			b := Bars{Groups: rapid.SliceOfNDistinct(name, 1, 9, rapid.ID[string]).Draw(t, "groups")}
			for _, n := range names {
				b.Series = append(b.Series, Series{n, rapid.SliceOfN(value, len(b.Groups), len(b.Groups)).Draw(t, "values")})
			}
			p.Data = b
		}
		if minimum, maximum := ends(p.Data.rows()); maximum > 0 && rapid.Bool().Draw(t, "cut") {
			p.Y.Max = maximum / 2
			if log {
				p.Y.Max = math.Sqrt(minimum) * math.Sqrt(maximum)
			}
		}
		f := Figure{Name: "f", Title: name.Draw(t, "title"), Kind: Predicted, Seeds: "s", Note: name.Draw(t, "note"),
			Panels: []Panel{p}}
		if err := f.valid(); err != nil {
			t.Skip(err) // a number too small
		}
		svg := drawn(t, f)
		require.NotRegexp(t, `[",]-?(NaN|[+-]?Inf)`, svg)
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
		}
	})
}

// Ensure that the standard deviation of a sample divides by n - 1. Ensure that it is 0 if values differ only by
// rounding.
func TestTheSpreadIsThatOfASample(t *testing.T) {
	require.Equal(t, Value{}, Average(nil))
	require.Equal(t, Value{Mean: 7, Seeds: 1}, Average([]float64{7}))
	for _, v := range []float64{0.1, 0.0263976, 1.0 / 3, 7e-5, 2.13} {
		var all []float64
		for range 8 {
			all = append(all, v)
			got := Average(all)
			require.InEpsilon(t, v, got.Mean, 1e-12)
			require.Zero(t, got.SD, "%d times %v", len(all), v)
		}
	}
	v := Average([]float64{1, 2, 6})
	require.InDelta(t, 3, v.Mean, 1e-12)
	require.InDelta(t, math.Sqrt(7), v.SD, 1e-12)
}

func TestATableNamesWhatItComparesWith(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteTable(&b,
		[]Check{{Item: "x", Paper: "2", Ours: "3", Reference: "measured", OK: true, Kind: Predicted}}))
	require.Contains(t, b.String(), "measured 2, ours 3")
	require.Contains(t, b.String(), "nothing was fitted to the values shown here")
	require.NotContains(t, b.String(), "paper")
	b.Reset()
	require.NoError(t, WriteTable(&b,
		[]Check{{Item: "x", Paper: "2", Ours: "9", Reference: "published", Tolerance: "it was raining", OK: true,
			Kind: KnownMiss}}))
	require.Contains(t, b.String(), "published 2, ours 9, cause: it was raining\n")
	require.Contains(t, b.String(), "farther from what it is compared with than its tolerance")
}

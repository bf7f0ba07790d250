package chart

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

//go:embed index.html style.css
var pageFiles embed.FS

var pageLayout = template.Must(template.New("index.html").Funcs(template.FuncMap{
	"style": func() (template.CSS, error) {
		text, err := pageFiles.ReadFile("style.css")
		return template.CSS(text), err
	},
	"counts": counts,
	"class":  func(k Kind) string { return strings.ReplaceAll(string(k), " ", "-") },
	"kinds":  kinds,
}).ParseFS(pageFiles, "index.html"))

// A Page is what index.html shows, from the top.
type Page struct {
	Title   string // "Figures of the simulator" if empty
	Answer  string // one or two sentences; may be empty
	Facts   []Fact // on which the answer is based
	Figures []Figure
	Checks  []Check
}

// A Fact is a named text.
type Fact struct{ Name, Text string }

// A shownFigure is a figure with its picture.
type shownFigure struct {
	Figure
	Picture template.HTML
}

// Words describe the picture for readers who cannot see it.
func (f shownFigure) Words() string { return f.words() }

// kinds returns the kinds that a page has to explain.
func kinds(figures []shownFigure, checks []Check) []Kind {
	has := map[Kind]bool{}
	for _, f := range figures {
		has[f.Kind] = true
	}
	for _, c := range checks {
		has[c.Kind] = true
	}
	return slices.DeleteFunc(slices.Clone(allKinds), func(k Kind) bool { return !has[k] })
}

// A tableRow is a number in the page's table.
type tableRow struct {
	Panel, Series, X        string
	Ours, Seeds             string
	Paper, Difference, Part string // Part: of the paper's value
}

// Table returns every number of the figure.
func (f shownFigure) Table() []tableRow {
	var all []tableRow
	for _, r := range f.rows() {
		t := tableRow{Panel: r.panel, Series: r.series, X: r.x}
		if r.measured {
			t.Ours, t.Seeds = long(r.Mean, r.Mean), fmt.Sprint(r.Seeds)
			if r.Seeds > 1 {
				t.Ours += " ± " + long(r.SD, r.Mean)
			}
		}
		if r.Paper != nil {
			t.Paper = long(r.Paper.Low, r.Paper.Low)
			if r.Paper.High != r.Paper.Low {
				t.Paper += " to " + long(r.Paper.High, r.Paper.High)
			}
			if r.measured {
				t.Difference, t.Part = difference(r.Mean, *r.Paper)
			}
		}
		all = append(all, t)
	}
	return all
}

// Titled reports whether the panels have titles, Compared whether the paper has values.
func (f shownFigure) Titled() bool {
	return slices.ContainsFunc(f.Panels, func(p Panel) bool { return p.Title != "" })
}

func (f shownFigure) Compared() bool {
	return slices.ContainsFunc(f.rows(), func(r row) bool { return r.Paper != nil })
}

// difference returns how far ours is from the paper's, or from the nearer end of its
// range, and the same in percent.
func difference(ours float64, paper Range) (absolute, relative string) {
	var d, of float64
	switch {
	case ours < paper.Low:
		d, of = ours-paper.Low, paper.Low
	case ours > paper.High:
		d, of = ours-paper.High, paper.High
	case paper.Low != paper.High:
		return "within", ""
	default:
		of = paper.Low
	}
	absolute = signed(long(d, of), d)
	if of != 0 {
		p := 100 * d / math.Abs(of)
		relative = signed(trimSign(fmt.Sprintf("%.1f", p)), p) + " %"
	}
	return absolute, relative
}

func signed(s string, v float64) string {
	switch {
	case v > 0:
		return "+" + s
	case v < 0:
		return strings.Replace(s, "-", "−", 1)
	default:
		return s
	}
}

// index returns the text of the page.
func index(p Page, figures []shownFigure) ([]byte, error) {
	if p.Title == "" {
		p.Title = "Figures of the simulator"
	}
	var b bytes.Buffer
	err := pageLayout.Execute(&b, struct {
		Page
		Figures []shownFigure
	}{p, figures})
	if err != nil {
		return nil, fmt.Errorf("chart: the page: %w", err)
	}
	return []byte(printable(b.String())), nil
}

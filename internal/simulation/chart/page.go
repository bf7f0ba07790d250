package chart

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
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

// A Page is the contents of index.html, from the top.
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

// Words describes the picture for readers who cannot see it.
func (f shownFigure) Words() string { return f.words() }

func kinds(figures []shownFigure, checks []Check) []Kind {
	shown := map[Kind]bool{}
	for _, f := range figures {
		shown[f.Kind] = true
	}
	for _, c := range checks {
		shown[c.Kind] = true
	}
	return slices.DeleteFunc(slices.Clone(allKinds), func(k Kind) bool { return !shown[k] })
}

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

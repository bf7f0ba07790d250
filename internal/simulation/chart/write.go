package chart

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path/filepath"

	"llmmemory/internal/jobs"
)

// Write writes a page of figures and checks. See Page.Write.
func Write(dir string, figures []Figure, checks ...Check) error {
	return Page{Figures: figures, Checks: checks}.Write(dir)
}

// Write writes NAME.svg, NAME.png and NAME.csv for each figure, and then index.html with all figures and a
// table of the checks. It creates the folder if necessary, replaces each file atomically, and leaves other
// files alone. If a figure is not valid, Write writes nothing and returns an error that wraps ErrFigure.
func (p Page) Write(dir string) error {
	files, err := p.render()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("chart: write the figures: %w", err)
	}
	for _, f := range files {
		if err := jobs.Replace(filepath.Join(dir, f.name), f.data); err != nil {
			return fmt.Errorf("chart: write the figures: %w", err)
		}
	}
	return nil
}

// A file is to be written.
type file struct {
	name string
	data []byte
}

func (p Page) render() ([]file, error) {
	var files []file
	var shown []shownFigure
	for _, f := range p.Figures {
		rendered, err := f.render()
		if err != nil {
			return nil, err
		}
		files = append(files, rendered...)
		_, svg, _ := bytes.Cut(rendered[0].data, []byte("<svg"))
		shown = append(shown, shownFigure{f, template.HTML("<svg" + string(svg))}) // whose texts are escaped already
	}
	page, err := index(p, shown)
	if err != nil {
		return nil, err
	}
	return append(files, file{"index.html", page}), nil
}

// render returns the files of the figure, the SVG first.
func (f Figure) render() ([]file, error) {
	if err := f.valid(); err != nil {
		return nil, err
	}
	p := newPicture(f)
	png, err := p.png()
	if err != nil {
		return nil, fmt.Errorf("chart: figure %q: %w", f.Name, err)
	}
	return []file{{f.Name + ".svg", p.svg()}, {f.Name + ".png", png}, {f.Name + ".csv", []byte(f.table())}}, nil
}

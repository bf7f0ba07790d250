package chart

import (
	"fmt"
	"os"
	"path/filepath"

	"llmmemory/internal/jobs"
)

// Write is Page.Write for figures and checks alone.
func Write(dir string, figures []Figure, checks ...Check) error {
	return Page{Figures: figures, Checks: checks}.Write(dir)
}

// WriteFigure writes a figure's files without a page.
func WriteFigure(dir string, f Figure) error {
	files, _, err := f.render()
	if err != nil {
		return err
	}
	return put(dir, files)
}

// Write writes for each figure NAME.svg, NAME.png and NAME.csv, and then index.html,
// the page of all of them with the checks as its table. The folder is made if
// need be; other files in it stay. A file is whole or not there. If a figure cannot
// be drawn, nothing is written, and the error has ErrFigure in its chain.
func (p Page) Write(dir string) error {
	files, err := p.render()
	if err != nil {
		return err
	}
	return put(dir, files)
}

// A file is to be written.
type file struct {
	name string
	data []byte
}

// render makes all files, the page last.
func (p Page) render() ([]file, error) {
	var files []file
	var shown []shownFigure
	for _, f := range p.Figures {
		of, svg, err := f.render()
		if err != nil {
			return nil, err
		}
		files = append(files, of...)
		shown = append(shown, shownFigure{f, inline(svg)})
	}
	page, err := index(p, shown)
	if err != nil {
		return nil, err
	}
	return append(files, file{"index.html", page}), nil
}

// render makes the files of a figure, and returns its SVG for a page.
func (f Figure) render() (files []file, svg string, err error) {
	if err := f.valid(); err != nil {
		return nil, "", err
	}
	if svg, err = newLayout(f).svg(); err != nil {
		return nil, "", err
	}
	png, err := newLayout(f).png()
	if err != nil {
		return nil, "", fmt.Errorf("chart: figure %q: %w", f.Name, err)
	}
	return []file{{f.Name + ".svg", []byte(svg)}, {f.Name + ".png", png}, {f.Name + ".csv", []byte(f.table())}}, svg, nil
}

func put(dir string, files []file) error {
	err := os.MkdirAll(dir, 0o755)
	for _, f := range files {
		if err == nil {
			err = jobs.Replace(filepath.Join(dir, f.name), f.data)
		}
	}
	if err != nil {
		return fmt.Errorf("chart: write the figures: %w", err)
	}
	return nil
}

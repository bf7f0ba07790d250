package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write is Page.Write for figures and checks alone.
func Write(dir string, figures []Figure, checks ...Check) error {
	return Page{Figures: figures, Checks: checks}.Write(dir)
}

// WriteFigure writes a figure's files without a page.
func WriteFigure(dir string, f Figure) error {
	if err := validAll([]Figure{f}); err != nil {
		return err
	}
	files, _, err := f.render()
	if err != nil {
		return err
	}
	if err := put(dir, files); err != nil {
		return fmt.Errorf("chart: write the figure %q: %w", f.Name, err)
	}
	return nil
}

// Write writes for each figure NAME.svg, NAME.png and NAME.csv, and index.html,
// the page of all of them with the checks as its table. The folder is made if
// need be; other files in it stay.
//
// All is made first, in a folder beside, and then moved: a file is whole or not
// there, and the page comes last. If a figure cannot be drawn nothing is written,
// and the error has ErrFigure in its chain.
func (p Page) Write(dir string) error {
	if err := errors.Join(validAll(p.Figures), validChecks(p.Checks), p.validTexts()); err != nil {
		return err
	}
	files, err := p.render()
	if err != nil {
		return err
	}
	if err := put(dir, files); err != nil {
		return fmt.Errorf("chart: write the figures: %w", err)
	}
	return nil
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
	if svg, err = newLayout(f).svg(); err != nil {
		return nil, "", err
	}
	png, err := newLayout(f).png()
	if err != nil {
		return nil, "", fmt.Errorf("chart: figure %q: %w", f.Name, err)
	}
	return []file{{f.Name + ".svg", []byte(svg)}, {f.Name + ".png", png}, {f.Name + ".csv", []byte(f.table())}}, svg, nil
}

// put writes the files to a temporary folder on the same disk, and moves them.
func put(dir string, files []file) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(dir, ".chart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(beside)) }()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(beside, f.name), f.data, 0o644); err != nil {
			return err
		}
		// What cannot be replaced is better known before anything has been.
		if at, err := os.Lstat(filepath.Join(dir, f.name)); err == nil && at.IsDir() {
			return &fs.PathError{Op: "replace", Path: filepath.Join(dir, f.name), Err: errors.New("it is a folder")}
		}
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(beside, f.name), filepath.Join(dir, f.name)); err != nil {
			return err
		}
	}
	return nil
}

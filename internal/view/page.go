package view

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html page.css script
var files embed.FS

// scripts lists the files that make up the script, which share one scope. Outside functions, a file may use only the
// names of earlier files.
var scripts = []string{
	"script/frames.js", "script/past.js", "script/grids.js", "script/groups.js", "script/tables.js", "script/light.js",
	"script/boards.js", "script/steps.js", "script/scenes.js",
}

var layout = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"list":     list,
	"first":    func(r *Recording) *Frame { return &r.Frames[0] },
	"last":     func(r *Recording) *Frame { return &r.Frames[len(r.Frames)-1] },
	"lastStep": func(r *Recording) int { return len(r.Frames) - 1 },
}).ParseFS(files, "page.html"))

// Write writes a page that plays scenes back. If there are several scenes, the page lets the reader choose one. The
// page is one file that needs no server. If a recording cannot be shown, Write writes nothing, and its error wraps
// ErrRecording.
func Write(w io.Writer, scenes ...*Scene) error { return write(w, scenes, nil) }

// write writes the page. If live is not nil, the page requests new frames from its server.
func write(w io.Writer, scenes []*Scene, live *liveness) error {
	if len(scenes) == 0 {
		return fmt.Errorf("%w: there is nothing to show", ErrRecording)
	}
	for _, s := range scenes {
		if err := s.check(); err != nil {
			return err
		}
	}
	data, err := encode(scenes, live)
	if err != nil {
		return err
	}
	style, script := file("page.css"), program()
	policy := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'", sum(style), sum(script))
	if live != nil {
		policy += "; connect-src 'self'"
	}
	page := struct {
		Scenes []*Scene
		Policy string
		Style  template.CSS
		Script template.JS
		Data   template.JS // JSON without < and >
		End    int         // last frame of the first scene
	}{
		scenes, policy, template.CSS(style), template.JS(script), template.JS(data), len(scenes[0].Recordings[0].Frames) - 1,
	}
	var b strings.Builder
	if err := layout.Execute(&b, page); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// program returns the script, wrapped in a function so that its names do not become global.
func program() string {
	var b strings.Builder
	b.WriteString("(() => {\n'use strict'\n\n")
	for _, name := range scripts {
		b.WriteString(file(name))
	}
	b.WriteString("})()\n")
	return b.String()
}

func file(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

// sum returns the hash by which the page's Content-Security-Policy allows a style or script.
func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(s[:])
}

// list describes a block table for readers without scripts.
func list(s Sequence) string {
	if len(mapped(s.Table)) == 0 {
		return "none"
	}
	text := blocks(mapped(s.Table))
	if s.CPU {
		text += " of the CPU"
	}
	return text
}

// Package report writes reports for people: as text for a terminal, and as HTML pages for a student and for the class.
// All that it writes about a submission comes from the grade.Report.
//
// A drawing shows the memory around a difference at three moments: before the call, as expected after the call, and as
// it is after the call. drawing.go decides what is drawn. The drawing is text, which is coloured for a terminal or
// marked up for a page.
//
// A page is one file: it loads no script, font or picture. html/template escapes everything that comes from a
// submission, except in a drawing. paintPage escapes the text of a drawing.
package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/terminal"
)

//go:embed student.html class.html style.css class.js
var files embed.FS

// script is the script of the class page. The page shows everything without the script, too. CDATA lets the page be
// well-formed XML.
var script = template.JS("//<![CDATA[\n" + read("class.js") + "//]]>\n")

var digest = sha256.Sum256([]byte(script))

// policy allows that script and styles in the page, and nothing else.
var policy = fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'", base64.StdEncoding.EncodeToString(digest[:]))

func read(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// A taskTitle is the title of a task in the handout, and the names of its functions.
type taskTitle struct {
	Number    int
	Title     string
	Functions string
}

var taskTitles = [grade.Tasks]taskTitle{
	{1, "Engine Initialization", "llm_init"},
	{2, "Sequence Creation & Deletion", "create_sequence, free_sequence"},
	{3, "Sequence Forking", "fork_sequence"},
	{4, "Virtual Addressing, CoW & Appending", "append_kv"},
	{5, "Engine Destruction", "llm_destroy"},
}

var functions = template.FuncMap{
	"points": points,
	"style":  func() template.CSS { return template.CSS(read("style.css")) },
	"plural": plural,
	"sign":   sign,
	"class":  func(s grade.Status) string { return strings.ReplaceAll(string(s), " ", "-") },
	"add":    func(a, b int) int { return a + b },
	"signed": func(p float64) string { return fmt.Sprintf("%+.4g", p) },
	"head":   func(all []passRate) []passRate { return all[:min(maxRates, len(all))] },
	"tail":   func(all []passRate) []passRate { return all[min(maxRates, len(all)):] },
}

func layout(name string) *template.Template {
	return template.Must(template.New(name).Funcs(functions).ParseFS(files, name))
}

var studentLayout, classLayout = layout("student.html"), layout("class.html")

// points formats points with at most two decimals.
func points(p float64) string {
	return strconv.FormatFloat(math.Round(p*100)/100, 'f', -1, 64)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// sign returns a character for a status. It is shown beside the status for readers who cannot see the colour.
func sign(s grade.Status) string {
	switch s {
	case grade.Passed:
		return "✓"
	case grade.Failed:
		return "✗"
	default:
		return "–"
	}
}

func percent(part, total float64) float64 {
	if total == 0 {
		return 0
	}
	return math.Round(1000*part/total) / 10
}

// write writes a page from a template. Control characters are made visible. If the template fails, write writes
// nothing.
func write(w io.Writer, t *template.Template, data any) error {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err := io.WriteString(w, terminal.Visible(b.String()))
	return err
}

package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"llmmemory/internal/grade"
)

//go:embed student.html class.html style.css
var files embed.FS

// A taskTitle is what the handout calls a task, and the functions it asks for.
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
	"style":  style,
	"plural": plural,
	"sign":   sign,
	"class":  class,
	"add":    func(a, b int) int { return a + b },
}

// A layout is a page's template, parsed once.
func layout(name string) *template.Template {
	return template.Must(template.New(name).Funcs(functions).ParseFS(files, name))
}

var studentLayout, classLayout = layout("student.html"), layout("class.html")

func style() (template.CSS, error) {
	text, err := files.ReadFile("style.css")
	return template.CSS(text), err
}

// points has at most two decimals.
func points(p float64) string {
	return strconv.FormatFloat(math.Round(p*100)/100, 'f', -1, 64)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// sign stands beside a status, so that nothing is said by colour alone.
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

// class is a status as a CSS class.
func class(s grade.Status) string { return strings.ReplaceAll(string(s), " ", "-") }

func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(1000*part/whole) / 10
}

// write runs a template to its end before anything is written: a page is whole or
// not there.
func write(w io.Writer, t *template.Template, data any) error {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

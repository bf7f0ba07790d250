package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// A ward is a test inside a test, which may fail.
type ward struct {
	testing.TB
	failures string
	end      []func()
}

func (w *ward) Cleanup(f func())                  { w.end = append(w.end, f) }
func (w *ward) Errorf(format string, args ...any) { w.failures += fmt.Sprintf(format, args...) }

func TestAPageThatComplainsFailsItsTest(t *testing.T) {
	browser := Start(t)
	for _, s := range []struct{ name, body, failure string }{
		{"clean", `<p>text`, ""},
		{"console", `<script>console.error("no")</script>`, "console: error"},
		{"exception", `<script>missing()</script>`, "missing is not defined"},
		{"log", `<script type=module src=missing.js></script>`, "log: "},
		{"request", `<link rel=stylesheet href=style.css>`, "requests only itself"},
	} {
		t.Run(s.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "style.css"), nil, 0o644))
			file := filepath.Join(dir, "page.html")
			require.NoError(t, os.WriteFile(file, []byte("<!doctype html><title>page</title>"+s.body), 0o644))
			w := &ward{TB: t}
			Evaluate[string](t, Open(w, browser, file, Look{Width: 1280}), `document.title`)
			for i := len(w.end) - 1; i >= 0; i-- {
				w.end[i]()
			}
			require.Contains(t, w.failures, s.failure)
			require.Equal(t, s.failure == "", w.failures == "", w.failures)
		})
	}
}

package page_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/class"
	"llmmemory/internal/grade/page"
)

// What the grader could not grade has a page that says why, and no points but those
// that staff gave.
func TestAnEntryThatWasNotGradedHasAPage(t *testing.T) {
	points := 12.5
	for _, c := range []struct {
		name     string
		override *class.Override
		says     string
	}{
		{"nobody has decided", nil, "was not graded, because the grader failed"},
		{"staff gave points", &class.Override{Points: &points, Comment: "by hand"}, "<strong>12.5</strong> points"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			e := page.Entry{Result: &class.Result{Submission: class.Submission{Name: "ada\x1b"}, Err: errors.New("no <memory>\x1b left"), Override: c.override}}
			require.NoError(t, e.Write(&b))
			require.Contains(t, b.String(), c.says)
			require.Contains(t, b.String(), "no &lt;memory&gt;")
			require.NotContains(t, b.String(), "\x1b")
			require.Equal(t, c.override != nil, strings.Contains(b.String(), "</strong> points"))
		})
	}
}

package grade_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that what was not run has the maximum of what was.
func TestOnlySomeTracesHaveOneMaximum(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	correct := read(t, submissions+"correct/llm_memory.c")
	for _, c := range []struct {
		only string
		most float64
	}{{"task1_accepts", 14}, {"_refuses_null_engine", 56}, {"", 100}} {
		g.Only = c.only
		require.Equal(t, c.most, g.None("llm_memory.c", "there is none").MaxScore)
		for _, text := range []string{"int x = ;\n", correct} {
			if c.only == "" && text == correct {
				continue // which other tests grade
			}
			file := filepath.Join(t.TempDir(), "llm_memory.c")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			r, err := g.File(file)
			require.NoError(t, err)
			require.Equal(t, c.most, r.MaxScore)
		}
	}
}

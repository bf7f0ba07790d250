package grade_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/corpus"
)

const submissions = "../../testdata/submissions/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Every wrong submission of the table loses points, no equivalent one does.
func TestNothingWrongPassesAndNothingRightFails(t *testing.T) {
	g, err := grade.NewGrader()
	require.NoError(t, err)
	g.Traces, g.Tries = 6, 0
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	correct := read(t, submissions+"correct/llm_memory.c")
	mutants, err := corpus.Parse(read(t, submissions+"mutants.txt"))
	require.NoError(t, err)
	mutants = append(mutants, corpus.Mutant{ID: "correct", Kind: corpus.Equivalent})
	for _, m := range mutants {
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			source, err := m.Apply(correct)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "llm_memory.c")
			require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
			r, err := g.File(file)
			require.NoError(t, err)
			switch m.Kind {
			case corpus.Equivalent:
				require.Equal(t, r.MaxScore, r.Score, "%s: %v", m.What, r.Failed())
				require.Empty(t, r.Findings)
			case corpus.Rejected:
				require.Zero(t, r.Score)
			default:
				require.Less(t, r.Score, r.MaxScore, m.What)
				require.NotEmpty(t, r.Failed())
			}
		})
	}
}

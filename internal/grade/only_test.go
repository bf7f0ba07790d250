package grade_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that what was not run has the maximum of what was.
func TestOnlySomeTracesHaveOneMaximum(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	correct := corpus.Correct(t)
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
			file := putText(t, text)
			r, err := g.File(file)
			require.NoError(t, err)
			require.Equal(t, c.most, r.MaxScore)
		}
	}
}

package grade_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade"
	"llmmemory/internal/testkit/level"
)

// Ensure that a call which does not come back under Memcheck is waited for once: it is charged to
// its task, and the other functions are watched all the same.
func TestACallThatDoesNotComeBackIsWaitedForOnceUnderMemcheck(t *testing.T) {
	if !level.Long() {
		t.Skip("it waits for the limit of Memcheck")
	}
	const position = "    int logical = seq->kv_count / KV_PER_BLOCK;\n"
	change := replaced(t, position, "    static int calls;\n    while (++calls >= 100) {\n        calls = 100;\n    }\n"+position)
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	require.NoError(t, os.WriteFile(file, []byte(change(read(t, submissions+"correct/llm_memory.c"))), 0o644))
	r, err := newGrader(t).File(file)
	require.NoError(t, err)
	require.Contains(t, r.Notes, "Memcheck: append_kv does not come back: the traces that call it were left out after that")
	require.Contains(t, strings.Join(r.Notes, "\n"), "sanitizers: not run: append_kv does not come back under Memcheck either")
	unfinished := 0
	for _, f := range r.Findings {
		if f.Stage == grade.Memcheck {
			require.Equal(t, 4, f.Task)
			unfinished++
		}
	}
	require.Equal(t, 1, unfinished)
	for task, points := range r.ByTask() {
		require.Equal(t, task+1 != 4, points == 20, "task %d", task+1)
	}
	require.Equal(t, 89.88, r.Score)
}

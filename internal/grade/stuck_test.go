package grade_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that a function which does not come back under Memcheck is waited for once and costs
// the memory points of its task only, and that Memcheck still watches the other functions.
func TestAFunctionThatDoesNotComeBackIsWaitedForOnceUnderMemcheck(t *testing.T) {
	if !level.Long() {
		t.Skip("it waits for the limit of Memcheck")
	}
	const (
		inits  = "    LLMEngine *engine = malloc(sizeof *engine);\n"
		stores = "    records[offset] = kv_data;\n"
	)
	for _, test := range []struct {
		name  string
		calls int    // of llm_init, the last of which does not come back
		where string // a complaint of append_kv is made
	}{
		{"a complaint after it", 10, "logical > 200"},
		{"a complaint before and after it", 40, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			change := replaced(t,
				inits, fmt.Sprintf("    static int calls;\n    while (++calls >= %d) {\n        calls = %[1]d;\n    }\n", test.calls)+inits,
				stores, "    if ("+test.where+") {\n        int *volatile unset = malloc(sizeof *unset);\n"+
					"        if (*unset == 12345) {\n            offset = 0;\n        }\n        free(unset);\n    }\n"+stores)
			file := putText(t, change(corpus.Correct(t)))
			r, err := newGrader(t).File(file)
			require.NoError(t, err)
			require.Nil(t, r.Rejected)
			require.Contains(t, r.Notes, "Memcheck: llm_init does not come back: it was not called again there")
			require.Contains(t, strings.Join(r.Notes, "\n"),
				"sanitizers: not run: llm_init does not come back under Memcheck either")
			var tasks []int
			for _, f := range r.Findings {
				if f.Stage == grade.Memcheck {
					tasks = append(tasks, f.Task)
					require.Empty(t, f.Lines, "the complaint is told again")
				}
			}
			require.ElementsMatch(t, []int{1, 4}, tasks)
			require.Equal(t, [grade.Tasks]float64{12.25, 20, 20, 17, 20}, r.ByTask())
		})
	}
}

// R15 reads a freed sequence in a place that both free_sequence and fork_sequence reach.
func TestTheSameComplaintInTwoFunctionsCostsBothTasks(t *testing.T) {
	level.SkipQuick(t)
	all := mutants(t)
	m := all[slices.IndexFunc(all, func(m corpus.Mutant) bool { return m.ID == "R15" })]
	g := newGrader(t)
	g.Tries = 0
	g.LeaveOutSweeps()
	r, err := g.File(put(t, m))
	require.NoError(t, err)
	require.Subset(t, r.Failed(), []string{"task2_memory", "task3_memory"})
}

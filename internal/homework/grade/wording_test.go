package grade_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that a student can understand the first finding: it names the place of the mistake, and its trace
// shows this mistake only.
func TestTheFirstFindingSaysWhatTheMistakeIs(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	for _, c := range level.First(4, []struct {
		mutant, traces string
		headline       string
		sentence       string // words of it
		steps          string
	}{
		{"I6", "task1_", "After llm_init, engine->ref_count[0] was never written, but has to be 0", "using calloc", "init e0 64"},
		{"I7", "task1_", "After llm_init, engine->ref_count is an allocation of 1 byte, but has to be an allocation of 4 bytes", "using calloc", "init e0 64"},
		{"s2_21_init_pool_size_as_int", "task1_", "After llm_init, engine->total_local_blocks is -16777215 (pool_size does not fit in an int), but has to be 50331648", "total_local_blocks = pool_size", "init e0 1 3072"},
		{"s1_56_append_int_overflow_2gib", "task4_blocks_beyond", "append_kv does not return: it computes the address of block 50331648 in int, where block * BLOCK_SIZE overflows (the process ended by segmentation fault)", "Calculate the exact physical", ""},
		{"I8b", "task1_", "After llm_init, the prev pointer of the dummy head was never written, but has to be the dummy head", "MUST point to itself", "init e0 64"},
		{"F10", "task2_free", "After free_sequence, the prev pointer of the dummy head leads to freed memory, but has to be the dummy head", "Find and detach", "init e0 64; create e0 1 1; free e0 1"},
		{"K5", "task3_", "After fork_sequence, block_table[0] of sequence 2 is that of sequence 1, but has to be an allocation of its own", "allocate a child L2 table", "init e0 64; create e0 1 1; fork e0 1 2"},
		{"K15", "", "fork_sequence writes outside an allocation: byte 4 before engine->ref_count, which would be ref_count[-1]", "Increment the global ref_count", ""},
		{"U7", "task2_any_number", "1 of 600 calls of create_sequence fails, but all have to succeed", "Return NULL if", ""},
		{"C15", "task2_", "After create_sequence, sequence 1: block_table[1] was never written, but has to be NULL", "Initialize all 16 pointers to NULL", "init e0 64; create e0 1 1"},
		{"C15b", "task2_", "create_sequence does not return: it uses block_table[0] of the new sequence, which was never written (the process ended by segmentation fault)", "Initialize all 16 pointers to NULL", "init e0 64; create e0 1 1"},
		{"C18", "task2_", "After create_sequence, sequence 1: block_table[0][1] was never written, but has to be -1", "initialize all 16 entries to -1", "init e0 64; create e0 1 1"},
		{"R67", "task4_", "append_kv does not return: it uses block_table[1] of sequence 1, which is NULL (the process ended by segmentation fault)", "Allocate an L2 table if it is NULL", "init e0 1984; create e0 1 256; append e0 1 1"},
		{"U6", "task4_", "append_kv does not return: it uses a pointer that is NULL (the process ended by segmentation fault)", "none", ""},
		{"C20", "task2_", "create_sequence does not return: it uses block_table[1] of the new sequence, which is NULL (the process ended by segmentation fault)", "map its ID into the L2 table", "init e0 192; create e0 1 17"},
		{"C20b", "task2_", "After create_sequence, sequence 1: block_table[0][1] is -1 (block 1 is in block_table[1][0]), but has to be 1", "Go to block_table[2][6]", "init e0 192; create e0 1 17"},
	}) {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.Only = c.traces
			r := gradedBy(t, &g, putText(t, source(t, c.mutant)))
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			require.Equal(t, c.headline, f.Headline())
			if !f.Refused() {
				require.NotContains(t, f.Name, "_refuses_")
			}
			if c.sentence == "none" {
				require.Empty(t, f.Sentence)
			} else {
				require.Contains(t, f.Sentence, c.sentence)
			}
			if c.steps != "" {
				var steps []string
				for _, op := range f.Steps() {
					steps = append(steps, op.String())
				}
				require.Equal(t, c.steps, strings.Join(steps, "; "))
			}
		})
	}
}

func source(t *testing.T, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "s") {
		return corpus.Read(t, "independent/wrong/"+name+".c")
	}
	return corpus.Source(t, name)
}

func TestAMistakeIsReportedOnce(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	g.LeaveOutSweeps()
	r := gradedBy(t, g, putText(t, corpus.Source(t, "D1")))
	require.Len(t, r.Findings, 1)
	require.Contains(t, r.Findings[0].Lines[0], "gives the pool to free")
	stage := r.Stages[len(r.Stages)-1]
	require.Equal(t, grade.Rules, stage.Name)
	require.Equal(t, grade.Failed, stage.Tasks[4])
	for i, note := range r.Notes {
		require.NotContains(t, r.Notes[:i], note)
	}
}

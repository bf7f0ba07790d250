package grade_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// A row is a row of the table in cmd/llmgrade/README.md: how many points a mistake costs in each task.
type row struct {
	name             string
	source           string
	minLost, maxLost [grade.Tasks]float64 // points lost
	alike            bool                 // another row or a mutant shows the same: run only in make exhaustive
}

const stubs = `#include "llm_memory.h"
LLMEngine *llm_init(void *p, size_t n) { (void)p; (void)n; return NULL; }
Sequence *create_sequence(LLMEngine *e, int a, int b) { (void)e; (void)a; (void)b; return NULL; }
int free_sequence(LLMEngine *e, int a) { (void)e; (void)a; return -1; }
Sequence *fork_sequence(LLMEngine *e, int a, int b) { (void)e; (void)a; (void)b; return NULL; }
int append_kv(LLMEngine *e, int a, int b) { (void)e; (void)a; (void)b; return -1; }
int llm_destroy(LLMEngine *e) { (void)e; return -1; }
`

const task = 20.0 // points

func rows(t *testing.T) []row {
	all := [grade.Tasks]float64{task, task, task, task, task}
	untilAppend, _, _ := strings.Cut(corpus.Correct(t), "int append_kv(")
	return []row{
		{"six stubs", stubs, all, all, false},
		{"an empty file", "#include \"llm_memory.h\"\ntypedef int nothing;\n", all, all, true},
		{"tasks 1 to 3 and nothing else", untilAppend,
			[grade.Tasks]float64{0, 0, 0, task, task}, [grade.Tasks]float64{0, 0, 0, task, task}, false},
		{"a slip in llm_init", corpus.Changed(t, "free_local_blocks = engine->total_local_blocks;", "free_local_blocks = engine->total_local_blocks - 1;"),
			[grade.Tasks]float64{3}, [grade.Tasks]float64{task}, true},
		{"llm_destroy does nothing", corpus.Changed(t, "    struct list_node *node = engine->active_seqs.next;\n    while", "    return 0;\n    struct list_node *node = engine->active_seqs.next;\n    while"),
			[grade.Tasks]float64{4: 16}, [grade.Tasks]float64{4: task}, true},
		{"free_sequence frees no memory", corpus.Changed(t, "    drop_blocks(engine, seq);\n    free_tables(seq);\n", "    drop_blocks(engine, seq);\n"),
			[grade.Tasks]float64{1: 6}, [grade.Tasks]float64{1: task}, true},
		{"engine and ref_count in one allocation", corpus.Changed(t,
			"malloc(sizeof *engine);", "malloc(sizeof *engine + pool_size / BLOCK_SIZE * sizeof(int));",
			"engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof *engine->ref_count);", "engine->ref_count = memset(engine + 1, 0, pool_size / BLOCK_SIZE * sizeof(int));",
			"    free(engine->ref_count);\n    free(engine);\n", "    free(engine);\n"),
			[grade.Tasks]float64{3}, [grade.Tasks]float64{7}, false},
		{"a sequence and its L1 table in one allocation", corpus.Changed(t,
			"malloc(sizeof *seq);", "malloc(sizeof *seq + L1_PT_SIZE * sizeof(int *));",
			"seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);", "seq->block_table = (int **)(void *)(seq + 1);",
			"    free(seq->block_table);\n    free(seq);\n}\n\nstatic void drop_blocks", "    free(seq);\n}\n\nstatic void drop_blocks"),
			[grade.Tasks]float64{1: 3}, [grade.Tasks]float64{1: 7}, true},
		{"llm_destroy frees the pool", corpus.Changed(t, "    free(engine->ref_count);\n    free(engine);\n    return 0;", "    free(engine->ref_count);\n    free(engine->pool_base_ptr);\n    free(engine);\n    return 0;"),
			[grade.Tasks]float64{4: 16}, [grade.Tasks]float64{4: task}, true},
		{"free_sequence frees a table twice", corpus.Changed(t, "    drop_blocks(engine, seq);\n    free_tables(seq);\n", "    drop_blocks(engine, seq);\n    free(seq->block_table[0]);\n    free_tables(seq);\n"),
			[grade.Tasks]float64{1: 6}, [grade.Tasks]float64{1: task}, true},
		{"a helper of three tasks does not find the last sequence", corpus.Changed(t, "node = head->next; node != head; node = node->next", "node = head->next; node->next != head && node != head; node = node->next"),
			[grade.Tasks]float64{1: 6, 2: 3, 3: 3}, [grade.Tasks]float64{1: task, 2: task, 3: task}, false},
		{"append_kv is right and slow", corpus.Changed(t, "    seq->kv_count++;\n", "    seq->kv_count++;\n    for (volatile long i = 0; seq->kv_count == 4000 && i < 100000000000; i++) {\n    }\n"),
			[grade.Tasks]float64{3: 3}, [grade.Tasks]float64{3: task}, true},
		{"a copy is wrong at one position", corpus.Changed(t, "        if (id != -1) {\n            memcpy", "        if (id != -1 && l2 == 7 && l1 == 3) {\n            engine->ref_count[id]--;\n        } else if (id != -1) {\n            memcpy"),
			[grade.Tasks]float64{3: 3}, [grade.Tasks]float64{3: 8}, true},
	}
}

func TestPointsMeanWhatTheTableSays(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries = 0
	for _, c := range level.First(3, rows(t)) {
		if c.alike && !level.Exhaustive() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := gradedBy(t, g, putText(t, c.source))
			require.Nil(t, r.Rejected)
			for i, points := range r.ByTask() {
				require.GreaterOrEqual(t, task-points, c.minLost[i], "task %d: %v", i+1, r.Failed())
				require.LessOrEqual(t, task-points, c.maxLost[i]+1e-9, "task %d: %v", i+1, r.Failed())
			}
		})
	}
}

func TestOtherStylesAreGradedTheSame(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	g.Tries = 0
	for _, style := range level.Pick([]string{"phases"}, []string{"flat", "kernel", "phases"}) {
		all := []corpus.Mutant{{ID: "right", Kind: corpus.Equivalent}}
		if level.Exhaustive() {
			all = append(all, corpus.Mutants(t, "styles/"+style+".txt")...)
		}
		for _, m := range all {
			t.Run(style+" "+m.ID, func(t *testing.T) {
				t.Parallel()
				text, err := m.Apply(corpus.Read(t, "styles/"+style+".c"))
				require.NoError(t, err)
				r := gradedBy(t, g, putText(t, text))
				if m.Kind == corpus.Equivalent {
					require.Equal(t, r.MaxScore, r.Score, "%s: %v", m.What, r.Failed())
					return
				}
				require.LessOrEqual(t, r.Score, r.MaxScore-3, m.What)
			})
		}
	}
}

func TestOnlySomeTracesHaveOneMaximum(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	for traces, maxLost := range map[string]float64{"task1_accepts": 14, "_refuses_null_engine": 56, "": 100} {
		g.Only = traces
		require.Equal(t, maxLost, g.None("llm_memory.c", "there is none").MaxScore)
		require.Equal(t, maxLost, gradedBy(t, g, putText(t, "int x = ;\n")).MaxScore)
	}
	g.Only = "_refuses_null_engine"
	require.Equal(t, 56.0, gradedBy(t, g, putText(t, corpus.Correct(t))).MaxScore)
}

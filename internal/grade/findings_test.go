package grade_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/handout"
	"llmmemory/internal/grade"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that the first finding of a mistake is in its task, shows what was seen, and quotes the
// right sentence.
func TestAFindingHelps(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries = 20
	const position = "    int logical = seq->kv_count / KV_PER_BLOCK;\n"
	for _, c := range []struct {
		name     string
		only     string // part of the names of the traces to play; all, if empty
		change   func(string) string
		channel  compare.Channel
		sentence string
		says     string // in what it says of the finding
	}{
		{"a fork that shares the tables costs points in its task alone", "",
			replaced(t, "        child->block_table[i] = new_l2();\n        if (child->block_table[i] == NULL) {\n            free_tables(child);\n            return NULL;\n        }\n",
				"        child->block_table[i] = parent->block_table[i];\n"),
			compare.Heap, handout.ForkCopies, ""},
		{"an id that lives twice is told by what the call returns", "task3_refuses_existing",
			replaced(t, "    if (find(engine, new_seq_id) != NULL) {\n        return NULL;\n    }\n", ""),
			compare.Returned, handout.ForkIDs, ""},
		{"a pool that llm_init clears is told by its first byte, though others follow", "task1_counts_whole",
			replaced(t, "#include <limits.h>", "#include <limits.h>\n#include <string.h>", "    LLMEngine *engine = malloc(sizeof *engine);\n",
				"    memset(pool_addr, 0, pool_size);\n    LLMEngine *engine = malloc(sizeof *engine);\n"),
			compare.Pool, handout.WriteOnlyOnAppend, "0x00"},
		{"what is allocated in vain is told by the rule against it", "task2_oom_leaves",
			replaced(t, "    if (required > engine->free_local_blocks) {\n", "    void *volatile early = malloc(8);\n    free(early);\n    if (required > engine->free_local_blocks) {\n"),
			compare.Heap, handout.NoMallocIfRefused, "8 bytes"},
		{"what is not freed is told with its size", "task2_free_releases",
			replaced(t, "    free(seq->block_table);\n    free(seq);\n}\n\nstatic void drop", "    free(seq->block_table);\n}\n\nstatic void drop"),
			compare.Heap, handout.FreeTables, "an allocation of 40 bytes"},
		{"a failed assert is told with its text and its line", "task4_fills",
			replaced(t, "#include <limits.h>", "#include <assert.h>\n#include <limits.h>", position, position+"    assert(logical != 3 && \"three\");\n"),
			compare.Death, handout.Valgrind, "append_kv: Assertion `logical != 3 && \"three\"' failed."},
		{"the end of standard error is told", "task4_fills",
			replaced(t, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>", position, position+"    if (logical == 3) {\n        fprintf(stderr, \"logical is %d\\033\\n\", logical);\n        abort();\n    }\n"),
			compare.Death, handout.Valgrind, "logical is 3?"},
		{"the time that a call took is told with its limit", "task4_copies_once",
			replaced(t, position, position+"    while (logical == 1) {\n        seq->kv_count++;\n        seq->kv_count--;\n    }\n"),
			compare.Death, handout.WhiteBox, "it does not come back: it took "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.Only = c.only
			file := putText(t, c.change(corpus.Correct(t)))
			r, err := g.File(file)
			require.NoError(t, err)
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			require.Equal(t, c.channel, f.Channel, f.Difference)
			require.Equal(t, c.sentence, f.Sentence)
			require.Contains(t, f.Said+f.Actual, c.says)
			if c.channel == compare.Death && f.Said != "" && c.says[0] == 'a' {
				require.Regexp(t, `^llm_memory\.c:\d+: append_kv: Assertion`, f.Lines[0])
			}
			for task, points := range r.ByTask() {
				if c.only == "" && task+1 != f.Task {
					require.Equal(t, 20.0, points, "task %d", task+1)
				}
			}
		})
	}
}

// Ensure that system calls are reported: an attack ends the run and scores 0, a refused call
// costs nothing.
func TestRefusedSystemCallsAreNamed(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Only = "task1_refuses"
	const first = "    if (pool_addr == NULL ||"
	for _, c := range []struct {
		name, before string
		attack       string // what it is told as; else it is a note
		note         string
	}{
		{"a file of /proc", "    FILE *f = fopen(\"//proc/self/mem\", \"r\");\n    if (f != NULL) {\n        fclose(f);\n    }\n", "it opens a file of /proc (openat)", ""},
		{"what the C library reads in /proc", "    (void)sysconf(_SC_NPROCESSORS_ONLN);\n", "", "openat (which fopen makes, and sysconf), sched_getaffinity"},
		{"another file", "    FILE *f = fopen(\"debug.txt\", \"w\");\n    if (f != NULL) {\n        fclose(f);\n    }\n", "", "openat (which fopen makes, and sysconf)"},
		{"perror", "    perror(\"llm_init\");\n", "", "dup (which perror makes; it prints its message all the same)"},
		{"output", "    printf(\"%p\\n\", pool_addr);\n    fflush(stdout);\n", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := replaced(t, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>\n#include <unistd.h>", first, c.before+first)
			file := putText(t, change(corpus.Correct(t)))
			r, err := g.File(file)
			require.NoError(t, err)
			if c.attack != "" {
				require.NotNil(t, r.Rejected)
				require.Equal(t, grade.Attack, r.Rejected.Stage)
				require.Contains(t, r.Rejected.Text, c.attack)
				require.Zero(t, r.Score)
				return
			}
			require.Nil(t, r.Rejected)
			require.Empty(t, r.Findings)
			for _, note := range r.Notes {
				if c.note == "" {
					require.NotContains(t, note, "system calls")
				}
			}
			if c.note != "" {
				require.Contains(t, r.Notes, "system calls that are refused here, at no cost: "+c.note)
			}
		})
	}
}

// Everything under Memcheck and the sanitizers was also played without them before, so that run
// names every call, wherever it is made.
func TestRefusedSystemCallsAreNamedWhereverTheyAreMade(t *testing.T) {
	level.SkipQuick(t)
	change := replaced(t,
		"#include <limits.h>", "#include <limits.h>\n#include <stdio.h>\n#include <time.h>\n#include <unistd.h>",
		"    LLMEngine *engine = malloc(", "    (void)access(\"a\", F_OK); /* init */\n    LLMEngine *engine = malloc(",
		"    if (required > engine->free_local_blocks) {\n", "    if (required > engine->free_local_blocks) {\n        (void)unlink(\"a\"); /* refused create */\n",
		"    link_tail(engine, seq);\n", "    (void)rename(\"a\", \"b\"); /* create */\n    link_tail(engine, seq);\n",
		"    link_tail(engine, child);\n", "    struct timespec wait = {0, 1};\n    (void)nanosleep(&wait, NULL); /* fork */\n    link_tail(engine, child);\n",
		"        if (id != -1) {\n            memcpy", "        if (id != -1 && logical == 255 && offset == 15) {\n            (void)clock(); /* the last copy of a sweep */\n        }\n        if (id != -1) {\n            memcpy",
		"    unlink_node(seq);\n", "    if (seq->block_table[15] != NULL) {\n        FILE *f = fopen(\"a\", \"r\"); /* free */\n        if (f != NULL) {\n            fclose(f);\n        }\n    }\n    unlink_node(seq);\n",
		"        node = node->next;\n        free_tables(seq);\n", "        node = node->next;\n        (void)sysconf(_SC_NPROCESSORS_ONLN); /* destroy */\n        free_tables(seq);\n")
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	text := "#define _DEFAULT_SOURCE\n#define _POSIX_C_SOURCE 200809L\n" + change(corpus.Correct(t))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	r, err := newGrader(t).File(file)
	require.NoError(t, err)
	require.Nil(t, r.Rejected)
	require.Equal(t, r.MaxScore, r.Score, r.Failed())
	require.Regexp(t, `refused here, at no cost: f?access(at)?, clock_gettime, clock_nanosleep, openat \(which fopen makes, and sysconf\), rename(at2?)?, sched_getaffinity, unlink(at)?$`,
		strings.Join(r.Notes, "\n"))
}

// Ensure that --exhaustive shows a mistake by the fewest calls and does not change the score.
func TestExhaustiveShowsTheShortestTrace(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Exhaustive, g.Tries = true, 0
	g.LeaveOutSweeps()
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	change := replaced(t, "                engine->ref_count[id]++;\n", "")
	require.NoError(t, os.WriteFile(file, []byte(change(corpus.Correct(t))), 0o644))
	r, err := g.File(file)
	require.NoError(t, err)
	last := r.Findings[len(r.Findings)-1]
	require.Equal(t, grade.Exhaustive, last.Stage)
	require.Len(t, last.Ops, 3) // init, create, fork
	require.Zero(t, last.Gain)
	for task, points := range r.ByTask() {
		require.Equal(t, task+1 != 3, points == 20, "task %d", task+1)
	}
}

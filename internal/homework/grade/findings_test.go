package grade_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that the first finding for a mistake helps. It must be in the mistake's task, show what was observed, and
// quote the broken sentence of the handout.
func TestAFindingHelps(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries = 20
	const (
		position = "    int logical = seq->kv_count / KV_PER_BLOCK;\n"
		fits     = "    for (int id = 0; id < engine->total_local_blocks; id++) {\n"
		takes    = "        int fresh = take_block(engine);\n"
		fromHere = "        from = id + 1;\n" + takes + "        from = 0;\n"
		firstFit = "static int first_fit(LLMEngine *engine) {\n"
	)
	for _, c := range level.First(4, []struct {
		name     string
		traces   string // names of traces to play (parts are enough); empty: all
		source   string
		channel  compare.Channel
		sentence string
		says     string // in what it says of the finding
	}{
		{"an id that lives twice is reported by what the call returns", "task3_refuses_existing",
			corpus.Changed(t, "    if (find(engine, new_seq_id) != NULL) {\n        return NULL;\n    }\n", ""),
			compare.Returned, handout.ForkIDs, ""},
		{"a pool that llm_init clears is reported by its first byte, though others follow", "task1_counts_whole",
			corpus.Changed(t, "#include <limits.h>", "#include <limits.h>\n#include <string.h>", "    LLMEngine *engine = malloc(sizeof *engine);\n",
				"    memset(pool_addr, 0, pool_size);\n    LLMEngine *engine = malloc(sizeof *engine);\n"),
			compare.Pool, handout.WriteOnlyOnAppend, "0x00"},
		{"what is allocated in vain is reported by the rule against it", "task2_oom_leaves",
			corpus.Changed(t, "    if (required > engine->free_local_blocks) {\n", "    void *volatile early = malloc(8);\n    free(early);\n    if (required > engine->free_local_blocks) {\n"),
			compare.Heap, handout.NoMallocIfRefused, "8 bytes"},
		{"what is not freed is reported with its size", "task2_free_releases",
			corpus.Changed(t, "    free(seq->block_table);\n    free(seq);\n}\n\nstatic void drop", "    free(seq->block_table);\n}\n\nstatic void drop"),
			compare.Heap, handout.FreeTables, "an allocation of 40 bytes"},
		{"what is freed twice by one call is named", "task5_frees_every_s",
			corpus.Changed(t, "    free(engine->ref_count);\n    free(engine);\n    return 0;", "    free(engine->ref_count);\n    free(engine->ref_count);\n    free(engine);\n    return 0;"),
			compare.Heap, handout.DestroyAll, "engine->ref_count, which this call has freed before"},
		{"what is freed by two calls is named", "task2_free_releases",
			corpus.Changed(t, "static Sequence *find", "static void *tables;\n\nstatic Sequence *find",
				"    drop_blocks(engine, seq);\n    free_tables(seq);\n", "    drop_blocks(engine, seq);\n    free(tables);\n    tables = seq->block_table;\n    free_tables(seq);\n"),
			compare.Heap, handout.FreeTables, "block_table of sequence 1, which free_sequence has freed before"},
		{"one allocation more is reported in the singular", "task4_stores",
			corpus.Changed(t, "    seq->kv_count++;\n", "    seq->kv_count++;\n    void *volatile more = malloc(8);\n    (void)more;\n"),
			compare.Heap, handout.AppendL2, "After append_kv there is 1 allocation more than before; there must be as many as before"},
		{"a copy that looks for a free block behind the old one only", "task4_takes_the_first",
			corpus.Changed(t, firstFit, "static int from;\n\n"+firstFit, takes, fromHere, fits, "    for (int id = from; id < engine->total_local_blocks; id++) {\n"),
			compare.Counts, handout.FirstFit, "0"},
		{"a copy that looks for a free block behind the old one first", "task4_takes_the_first",
			corpus.Changed(t, firstFit, "static int from;\n\n"+firstFit, takes, fromHere, fits, "    for (int n = 0; n < engine->total_local_blocks; n++) {\n        int id = (from + n) % engine->total_local_blocks;\n"),
			compare.Counts, handout.FirstFit, "0"},
		{"a failed assert is reported with its text and its line", "task4_fills",
			corpus.Changed(t, "#include <limits.h>", "#include <assert.h>\n#include <limits.h>", position, position+"    assert(logical != 3 && \"three\");\n"),
			compare.Death, "", "append_kv: Assertion `logical != 3 && \"three\"' failed."},
		{"the end of standard error is reported", "task4_fills",
			corpus.Changed(t, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>", position, position+"    if (logical == 3) {\n        fprintf(stderr, \"logical is %d\\033\\n\", logical);\n        abort();\n    }\n"),
			compare.Death, "", "logical is 3?"},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.Only = c.traces
			r := gradedBy(t, &g, putText(t, c.source))
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			require.Equal(t, c.channel, f.Channel, f.Difference)
			require.Equal(t, c.sentence, f.Sentence)
			require.Contains(t, f.Said+f.Actual+f.Headline(), c.says)
			if strings.Contains(c.says, "Assertion") {
				require.Regexp(t, `^llm_memory\.c:\d+: append_kv: Assertion`, f.Lines[0])
			}
		})
	}
}

func TestTheSameComplaintInTwoFunctionsCostsBothTasks(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	g.Tries = 0
	g.LeaveOutSweeps()
	g.PlayOnly(2, 3)
	r := gradedBy(t, g, putText(t, corpus.Source(t, "R15")))
	require.Subset(t, r.Failed(), []string{"task2_memory", "task3_memory"})
	seen := map[string]bool{}
	for _, f := range r.Findings {
		require.False(t, seen[f.Name], "%s: a further complaint is a line", f.Name)
		seen[f.Name] = true
	}
}

// Ensure that an attack by a system call ends the run and scores 0. If the sandbox refuses a harmless system call,
// the submission loses no points.
func TestRefusedSystemCallsAreNamed(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Only = "task1_refuses"
	const first = "    if (pool_addr == NULL ||"
	calls := func(text string) *grade.Report {
		source := corpus.Changed(t, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>\n#include <unistd.h>", first, text+first)
		return gradedBy(t, g, putText(t, source))
	}
	r := calls("    FILE *f = fopen(\"//proc/self/mem\", \"r\");\n    if (f != NULL) {\n        fclose(f);\n    }\n")
	require.NotNil(t, r.Rejected)
	require.Equal(t, grade.Attack, r.Rejected.Stage)
	require.Contains(t, r.Rejected.Text, "it opens a file of /proc (openat)")
	require.Zero(t, r.Score)

	r = calls("    printf(\"%p\\n\", pool_addr);\n    fflush(stdout);\n    perror(\"llm_init\");\n    (void)sysconf(_SC_NPROCESSORS_ONLN);\n")
	require.Nil(t, r.Rejected)
	require.Empty(t, r.Findings)
	require.Contains(t, r.Notes, "system calls that are refused here, at no cost: "+
		"dup (which perror makes; it prints its message all the same), openat (which fopen makes, and sysconf), sched_getaffinity")
}

// Ensure that the report names every refused system call, in whichever function of the homework it is made. This holds
// even for a system call that is made only in the last step of a sweep.
func TestRefusedSystemCallsAreNamedWhereverTheyAreMade(t *testing.T) {
	level.SkipNormal(t)
	source := corpus.Changed(t,
		"#include <limits.h>", "#include <limits.h>\n#include <stdio.h>\n#include <time.h>\n#include <unistd.h>",
		"    LLMEngine *engine = malloc(", "    (void)access(\"a\", F_OK); /* init */\n    LLMEngine *engine = malloc(",
		"    if (required > engine->free_local_blocks) {\n", "    if (required > engine->free_local_blocks) {\n        (void)unlink(\"a\"); /* refused create */\n",
		"    link_tail(engine, seq);\n", "    (void)rename(\"a\", \"b\"); /* create */\n    link_tail(engine, seq);\n",
		"    link_tail(engine, child);\n", "    struct timespec wait = {0, 1};\n    (void)nanosleep(&wait, NULL); /* fork */\n    link_tail(engine, child);\n",
		"        if (id != -1) {\n            memcpy", "        if (id != -1 && logical == 255 && offset == 15) {\n            (void)clock(); /* the last copy of a sweep */\n        }\n        if (id != -1) {\n            memcpy",
		"    unlink_node(seq);\n", "    if (seq->block_table[15] != NULL) {\n        FILE *f = fopen(\"a\", \"r\"); /* free */\n        if (f != NULL) {\n            fclose(f);\n        }\n    }\n    unlink_node(seq);\n",
		"        node = node->next;\n        free_tables(seq);\n", "        node = node->next;\n        (void)sysconf(_SC_NPROCESSORS_ONLN); /* destroy */\n        free_tables(seq);\n")
	g := newGrader(t)
	g.Only = "task" // every directed trace
	r := gradedBy(t, g, putText(t, "#define _DEFAULT_SOURCE\n#define _POSIX_C_SOURCE 200809L\n"+source))
	require.Nil(t, r.Rejected)
	require.Equal(t, r.MaxScore, r.Score, r.Failed())
	require.Regexp(t, `refused here, at no cost: f?access(at)?, clock_gettime, clock_nanosleep, openat \(which fopen makes, and sysconf\), rename(at2?)?, sched_getaffinity, unlink(at)?$`,
		strings.Join(r.Notes, "\n"))
}

// Ensure that if a call of a function does not return under Memcheck, Memcheck runs no further call of the function.
// This costs only the memory points of the function's own task.
func TestAFunctionThatDoesNotComeBackIsWaitedForOnceUnderMemcheck(t *testing.T) {
	if !level.Exhaustive() {
		t.Skip("it waits for the limit of Memcheck")
	}
	const (
		inits  = "    LLMEngine *engine = malloc(sizeof *engine);\n"
		stores = "    records[offset] = kv_data;\n"
	)
	for _, test := range []struct {
		name      string
		calls     int    // of llm_init, the last of which does not come back
		condition string // a complaint of append_kv is made
	}{
		{"a complaint after it", 10, "logical > 200"},
		{"a complaint before and after it", 40, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := corpus.Changed(t,
				inits, fmt.Sprintf("    static int calls;\n    while (++calls >= %d) {\n        calls = %[1]d;\n    }\n", test.calls)+inits,
				stores, "    if ("+test.condition+") {\n        int *volatile unset = malloc(sizeof *unset);\n"+
					"        if (*unset == 12345) {\n            offset = 0;\n        }\n        free(unset);\n    }\n"+stores)
			r := gradedBy(t, newGrader(t), putText(t, source))
			require.Nil(t, r.Rejected)
			require.Contains(t, r.Notes, "Memcheck: llm_init does not come back: it was not called again there")
			require.Contains(t, strings.Join(r.Notes, "\n"),
				"sanitizers: not run: llm_init does not come back under Memcheck either")
			var tasks []int
			for _, f := range r.Findings {
				if f.Stage == grade.Memcheck {
					tasks = append(tasks, f.Task)
					require.Empty(t, f.Lines, "the complaint is reported again")
				}
			}
			require.ElementsMatch(t, []int{1, 4}, tasks)
			require.Equal(t, [grade.Tasks]float64{12.25, 20, 20, 17, 20}, r.ByTask())
		})
	}
}

func TestAFunctionThatIsRightIsNotCharged(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.LeaveOutSweeps()
	const (
		counts  = "engine->free_local_blocks = engine->total_local_blocks;"
		freed   = "                engine->free_local_blocks++;\n"
		clears  = "                memset((char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE, 0, BLOCK_SIZE);\n"
		destroy = "    free(engine->ref_count);\n    free(engine);\n    return 0;"
	)
	for _, c := range level.First(1, []struct {
		name, source string
		tasks        []int
	}{
		{"blocks that become free are cleared", corpus.Changed(t, freed, freed+clears, "        free_tables(seq);\n    }\n    free(engine->ref_count);", "        drop_blocks(engine, seq);\n        free_tables(seq);\n    }\n    free(engine->ref_count);"), []int{2, 5}},
		{"llm_init and llm_destroy are wrong", corpus.Changed(t, counts, "engine->free_local_blocks = engine->total_local_blocks - 1;",
			destroy, "    ((char *)engine->pool_base_ptr)[5] = 0;\n"+destroy), []int{1, 5}},
		{"create_sequence fails after a number of calls", corpus.Changed(t, "    if (initial_kv_len <= 0) {\n", "    static int calls;\n    if (initial_kv_len <= 0 || ++calls > 40) {\n"), []int{2}},
		{"a sequence of another engine is found", corpus.Source(t, "R16"), []int{2, 3, 4}},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := putText(t, c.source)
			r := gradedBy(t, g, file)
			var lost []int
			for i, points := range r.ByTask() {
				if points < task {
					lost = append(lost, i+1)
				}
			}
			require.Equal(t, c.tasks, lost, r.Failed())
			for _, f := range r.Findings {
				require.Contains(t, c.tasks, f.Task, f.Name)
				if f.Step < 0 {
					continue
				}
				second, err := g.Replay(file, f.Steps())
				require.NoError(t, err)
				require.True(t, second.Findings[0].Difference.Same(f.Difference), "%s: %v", f.Name, second.Findings[0].Difference)
			}
		})
	}
}

// Ensure that a task fails the stages Memcheck and Sanitizers if one of its calls crashes or misuses memory. If the
// tools have watched no call of the task, the stages count as not run for it.
func TestWhatMemcheckSaysOfAFindingFailsIt(t *testing.T) {
	level.SkipQuick(t)
	g := newGrader(t)
	g.Tries = 20
	g.LeaveOutSweeps()
	const next = "        node = node->next;\n        free_tables(seq);\n"
	for _, c := range level.First(1, []struct {
		name, source         string
		task                 int
		memcheck, sanitizers grade.Status
		points               float64 // of the task's memory
	}{
		{"a read of freed memory", corpus.Changed(t, next, "        free_tables(seq);\n        node = node->next;\n"), 5, grade.Failed, grade.Failed, 0},
		{"NULL", corpus.Changed(t, "            seq->block_table[l1] = new_l2();\n", "            seq->block_table[l1] = NULL;\n",
			"            if (seq->block_table[l1] == NULL) {\n                return -1;\n            }\n        }\n        int fresh", "        }\n        int fresh"), 4, grade.Failed, grade.Failed, 0},
		{"what is not initialised", corpus.Changed(t, "        seq->block_table[i] = NULL;\n", "        (void)i;\n",
			"        seq->block_table[i] = new_l2();\n", "        if (seq->block_table[i] == NULL) {\n            seq->block_table[i] = new_l2();\n        }\n"), 2, grade.Failed, grade.Failed, 0},
		{"a task that does not work", corpus.Changed(t, "    Sequence *parent = find(engine, parent_seq_id);\n", "    return NULL;\n    Sequence *parent = find(engine, parent_seq_id);\n"), 3, grade.NotRun, grade.NotRun, 0},
		{"a leak", corpus.Changed(t, "    free(seq->block_table);\n    free(seq);\n}\n\nstatic void drop", "    free(seq);\n}\n\nstatic void drop"), 2, grade.Failed, grade.NotRun, 0},
		{"a table is freed twice", corpus.Changed(t, "    free(engine->ref_count);\n    free(engine);\n    return 0;", "    free(engine->ref_count);\n    free(engine->ref_count);\n    free(engine);\n    return 0;"), 5, grade.Failed, grade.Failed, 0},
		{"a write before an array", corpus.Changed(t, "            child->block_table[i][j] = id;\n            if (id != -1) {\n                engine->ref_count[id]++;\n            }\n",
			"            child->block_table[i][j] = id;\n            engine->ref_count[id]++;\n"), 3, grade.Failed, grade.Failed, 0},
		{"a failed assert is no access", corpus.Changed(t, "#include <limits.h>", "#include <assert.h>\n#include <limits.h>", "    int offset = seq->kv_count", "    assert(seq->kv_count < 256);\n    int offset = seq->kv_count"), 4, grade.Passed, grade.Passed, 1},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.PlayOnly(c.task)
			g.Traces = 0
			r := gradedBy(t, &g, putText(t, c.source))
			for _, s := range r.AllStages() {
				switch s.Name {
				case grade.Memcheck:
					require.Equal(t, c.memcheck, s.Tasks[c.task-1], "%v", s)
				case grade.Sanitizers:
					require.Equal(t, c.sanitizers, s.Tasks[c.task-1], "%v", s)
				}
			}
			for _, test := range r.Tests {
				if test.Task == c.task && test.Part == grade.PartMemory {
					require.Equal(t, c.points > 0, test.Score > 0, "%v", test)
				}
			}
		})
	}
}

// Ensure that a finding says so if the grader itself has changed the list of sequences. A submission may remember a
// sequence between calls and use it after the grader has removed it.
func TestAFindingSaysThatTheTesterChangesTheList(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	g.LeaveOutSweeps()
	const says = "the tester itself changed the list of sequences before this call"
	for _, c := range []struct {
		name, source string
		steps        map[grade.StageName]string // of the finding: what the tester did
	}{
		{"the sequence found last is remembered until it is freed", corpus.Changed(t,
			"static Sequence *find(LLMEngine *engine, int seq_id) {\n", "static Sequence *last;\nstatic LLMEngine *its;\n\nstatic Sequence *find(LLMEngine *engine, int seq_id) {\n"+
				"    if (last != NULL && its == engine && last->seq_id == seq_id) {\n        return last;\n    }\n",
			"            return seq;\n", "            last = seq;\n            its = engine;\n            return seq;\n",
			"    seq->node.prev->next = seq->node.next;\n", "    last = NULL;\n    seq->node.prev->next = seq->node.next;\n",
			"    struct list_node *node = engine->active_seqs.next;\n    while", "    last = NULL;\n    struct list_node *node = engine->active_seqs.next;\n    while"),
			map[grade.StageName]string{grade.Sanitizers: "given free e0 ", grade.Directed: "unlink e0 1"}},
		{"a read of freed memory", corpus.Source(t, "M4"), map[grade.StageName]string{grade.Memcheck: ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := gradedBy(t, g, putText(t, c.source))
			require.Len(t, r.Findings, len(c.steps))
			for _, f := range r.Findings {
				require.Contains(t, c.steps, f.Stage)
				lines := strings.Join(f.Lines, "\n")
				if c.steps[f.Stage] == "" {
					require.NotContains(t, lines, says, f.Name)
				} else {
					require.Contains(t, lines, says, f.Name)
					require.Contains(t, lines, c.steps[f.Stage], f.Name)
				}
			}
		})
	}
}

// Ensure that a finding about a NULL pointer says that the pointer is an entry of a block table, such as
// block_table[1], only if the submission's llm_init was called. If the grader did the work of llm_init, the pointer may
// be a global variable that the submission's llm_init would have set. The finding then says that llm_init was not
// called.
func TestAGlobalVariableOfLLMInitIsDistinguishedFromATable(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	global := strings.ReplaceAll(corpus.Correct(t), "engine->ref_count", "refs")
	global = strings.Replace(global, "static Sequence *sequence_of", "static int *refs;\n\nstatic Sequence *sequence_of", 1)
	global = strings.Replace(global, "    engine->active_seqs.prev = &engine->active_seqs;\n", "    engine->ref_count = refs;\n    engine->active_seqs.prev = &engine->active_seqs;\n", 1)
	global = strings.ReplaceAll(global, "sizeof *refs", "sizeof(int)")
	noTable := func(before, after string) string { return corpus.Changed(t, before, after) }
	for _, c := range []struct {
		name, traces, source string
		says                 string
		remark               bool
	}{
		{"create_sequence", "task2_needs", global, "it uses a pointer that is NULL", true},
		{"free_sequence", "task2_free_releases", global, "it uses a pointer that is NULL", true},
		{"fork_sequence", "task3_copies_the_mapped", global, "it uses a pointer that is NULL", true},
		{"append_kv", "task4_full_block", global, "it uses a pointer that is NULL", true},
		{"llm_destroy", "task5_frees_an_empty", global, "engine->ref_count: an allocation of 4 bytes", true},
		{"fork_sequence without a table of the child", "task3_copies_the_mapped", noTable("        child->block_table[i] = new_l2();\n        if (child->block_table[i] == NULL) {\n            free_tables(child);\n            return NULL;\n        }\n", ""),
			"it uses a pointer that is NULL", false},
		{"free_sequence with a table that is NULL", "task2_free_releases", noTable("        if (seq->block_table[i] == NULL) {\n            continue;\n        }\n        for (int j = 0; j < L2_PT_SIZE; j++) {\n            int id = seq->block", "        for (int j = 0; j < L2_PT_SIZE; j++) {\n            int id = seq->block"),
			"it uses block_table[1] of sequence 1, which is NULL", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := *g
			g.Only = c.traces
			r := gradedBy(t, &g, putText(t, c.source))
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			require.Contains(t, f.Actual, c.says)
			lines := strings.Join(f.Lines, "\n")
			if c.remark {
				require.Contains(t, lines, "llm_init was not called in this process")
				require.Contains(t, lines, "After a call of llm_init this call works")
			} else {
				require.NotContains(t, lines, "llm_init")
			}
		})
	}
}

func TestARightSubmissionMayPrint(t *testing.T) {
	level.SkipNormal(t)
	g := newGrader(t)
	g.LeaveOutSweeps()
	const stores = "    records[offset] = kv_data;\n"
	r := gradedBy(t, g, putText(t, corpus.Changed(t, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>",
		stores, stores+"    for (int i = 0; i < 2000; i++) {\n        printf(\"append %d\\n\", i);\n        fprintf(stderr, \"append %d\\n\", i);\n        puts(\"text\");\n"+
			"        fputs(\"text\\n\", stderr);\n        putchar('x');\n    }\n")))
	require.Nil(t, r.Rejected)
	require.Equal(t, r.MaxScore, r.Score, "%v", r.Failed())
}

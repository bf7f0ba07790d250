package gradescope

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/reporting/class"
)

func passing() *grade.Report {
	r := &grade.Report{Score: 10, MaxScore: 10}
	add := func(task int, name string, part grade.Part, points float64) {
		r.Tests = append(r.Tests, grade.Test{Task: task, Name: name, Part: part, Status: grade.Passed,
			Sentence: "Sentence of " + name + ".", Score: points, MaxScore: points})
	}
	for i := range 3 {
		add(1, fmt.Sprintf("task1_%c", 'a'+i), grade.PartDirected, 1.2)
	}
	add(2, "task2_a", grade.PartDirected, 3.4)
	for task := 1; task <= 2; task++ {
		add(task, fmt.Sprintf("task%d_hidden_traces", task), grade.PartHidden, 0.7)
		add(task, fmt.Sprintf("task%d_memory", task), grade.PartMemory, 0.8)
	}
	return r
}

// set sets the status of a test in the report. part is the fraction of the possible points that the test gets.
func set(r *grade.Report, name string, status grade.Status, part float64) *grade.Test {
	for i := range r.Tests {
		if t := &r.Tests[i]; t.Name == name {
			r.Score += t.MaxScore*part - t.Score
			t.Status, t.Score = status, t.MaxScore*part
			if status == grade.NotRun {
				t.Why = "fix something first"
			}
			return t
		}
	}
	panic(name)
}

func finding(name string, task int, stage grade.StageName, secret int32) grade.Finding {
	ops := []trace.Op{{Kind: trace.Init, A: 64}, {Kind: trace.Append, A: secret, B: secret}}
	return grade.Finding{Name: name, Task: task, Stage: stage, Sentence: "A broken sentence.", Ops: ops,
		Difference: &compare.Difference{Step: 1, Op: ops[1], Channel: compare.Pool, Field: fmt.Sprint("field ", secret), Expected: "1", Actual: "2"}}
}

func named(t *testing.T, all []Test, name string) Test {
	t.Helper()
	for _, test := range all {
		if test.Name == name {
			return test
		}
	}
	t.Fatalf("no test %s", name)
	return Test{}
}

func seen(t *testing.T, r *grade.Report) string {
	t.Helper()
	all := tests(r)
	visible := []Test{}
	for _, test := range all {
		if test.Visibility == Visible {
			visible = append(visible, test)
		}
	}
	text, err := json.MarshalIndent(visible, "", " ")
	require.NoError(t, err)
	return summary(class.Upload{Name: class.Wanted}, r, all) + string(text)
}

func TestTestsAreNumberedByTask(t *testing.T) {
	got := []string{}
	for _, test := range tests(passing()) {
		got = append(got, test.Number+" "+test.Name+" "+string(test.Visibility))
	}
	require.Equal(t, []string{
		"1.1 task1_a visible", "1.2 task1_b visible", "1.3 task1_c visible",
		"1.4 task1_hidden_traces after_due_date", "1.5 task1_memory visible",
		"2.1 task2_a visible", "2.2 task2_hidden_traces after_due_date", "2.3 task2_memory visible",
	}, got)
}

func TestATestThatWasNotRunSaysWhatItGives(t *testing.T) {
	r := passing()
	set(r, "task1_hidden_traces", grade.NotRun, 0)
	test := named(t, tests(r), "task1_hidden_traces")
	require.Nil(t, test.Score)
	require.Contains(t, test.Output, "fix something first.\nIt gives no points.\n")
}

func TestALeakIsReportedInTheTestOfTheMemory(t *testing.T) {
	r := passing()
	set(r, "task1_a", grade.Failed, 0)
	set(r, "task1_memory", grade.Failed, 0)
	f := finding("task1_a", 1, grade.Directed, 77)
	f.Channel, f.Field = compare.Heap, compare.Leaks
	r.Findings = []grade.Finding{f, finding("task1_b", 1, grade.Directed, 78)}
	require.Contains(t, named(t, tests(r), "task1_memory").Output, "The same mistake as in 1.1 task1_a.")
	require.NotContains(t, named(t, tests(r), "task1_memory").Output, "task1_b")
}

func TestAFindingIsReportedInItsTest(t *testing.T) {
	r := passing()
	set(r, "task1_a", grade.Failed, 0).Why = "the first difference"
	set(r, "task1_b", grade.Failed, 0).Why = "another difference"
	f := finding("task1_a", 1, grade.Directed, 77)
	f.Same, f.Lines = []string{"task1_b"}, []string{"llm_memory.c:12: Invalid read", "a leak"}
	f.Actual, f.Scene = "a leak", &compare.Scene{Before: &compare.State{Total: 7, Free: 5}}
	r.Findings = []grade.Finding{f}
	all := tests(r)
	out := named(t, all, "task1_a")
	require.Equal(t, Failed, out.Status)
	require.Zero(t, *out.Score)
	for _, part := range []string{"The handout: Sentence of task1_a.", "The handout: A broken sentence.", "    init e0 64\n    append e0 77 77\n",
		"field 77\n    expected: 1\n    actual:   a leak\n", "before append_kv: 5 free of 7", "llm_memory.c:12: Invalid read", "    append_kv(e[0], 77, 77);"} {
		require.Contains(t, out.Output, part)
	}
	require.NotContains(t, out.Output, "\na leak\n", "the difference states the leak")
	lost := r.Tests[0].MaxScore + r.Tests[1].MaxScore
	require.Contains(t, out.Output, fmt.Sprintf("Fixing it gives back +%.2f points in the visible tests.", lost))
	require.Contains(t, named(t, all, "task1_b").Output, "another difference\nThe same mistake as in 1.1 task1_a.")
	require.NotContains(t, named(t, all, "task1_c").Output, "77")
	require.NotContains(t, named(t, all, "task2_a").Output, "77")
}

func TestWhatWasNotRunHasNoStatus(t *testing.T) {
	r := passing()
	set(r, "task1_a", grade.Failed, 0)
	set(r, "task1_b", grade.NotRun, 0)
	set(r, "task1_memory", grade.NotRun, 0.5)
	all := tests(r)
	require.Nil(t, named(t, all, "task1_b").Score)
	require.Empty(t, named(t, all, "task1_b").Status)
	require.Contains(t, named(t, all, "task1_b").Output, "Neither passed nor failed: fix something first.")
	require.Empty(t, named(t, all, "task1_memory").Status)
	require.Equal(t, 0.4, *named(t, all, "task1_memory").Score, "what is given has to be said")
	require.Contains(t, summary(class.Upload{Name: class.Wanted}, r, all), "1 of the 6 visible tests failed, and 2 were not run, because something before them has to be fixed; 2 hidden tests are shown after the due date.")
}

func TestHiddenFindingsAreNotSeen(t *testing.T) {
	clean := seen(t, passing())
	require.Contains(t, clean, "The visible tests passed; 2 hidden tests are shown after the due date.")
	require.NotContains(t, strings.ToLower(clean), "all passed")
	for _, stage := range []grade.StageName{grade.Random, grade.Outside, grade.OwnCalls} {
		r := passing()
		set(r, "task1_hidden_traces", grade.Failed, 0)
		set(r, "task1_memory", grade.NotRun, 1) // because of that
		f := finding("task1_"+strings.ReplaceAll(string(stage), " ", "_"), 1, stage, 77)
		r.Notes = []string{"three calls did not come back"}
		r.Findings = []grade.Finding{f}
		require.Equal(t, clean, seen(t, r), stage)
		require.Contains(t, named(t, tests(r), "task1_hidden_traces").Output, "append e0 77 77", stage)

		r.Findings[0].Difference.Channel = compare.Death // then nothing is watched
		set(r, "task2_memory", grade.NotRun, 1)
		require.Equal(t, clean, seen(t, r), stage)
	}
}

func TestAVisibleReasonIsReported(t *testing.T) {
	r := passing()
	set(r, "task1_a", grade.Failed, 0)
	set(r, "task2_memory", grade.NotRun, 1)
	r.Findings = []grade.Finding{finding("task1_a", 1, grade.Directed, 77)}
	r.Findings[0].Difference.Channel = compare.Death
	out := named(t, tests(r), "task2_memory")
	require.Empty(t, out.Status)
	require.Contains(t, out.Output, "Neither passed nor failed")
}

func TestTheHeapOfAHiddenTraceIsReportedWithoutItsSteps(t *testing.T) {
	r := passing()
	set(r, "task1_memory", grade.Failed, 0)
	f := finding("task1_random_heap", 1, grade.Heap, 77)
	f.Lines = []string{"llm_memory.c:12: lost"}
	r.Findings = []grade.Finding{f}
	text := seen(t, r)
	require.NotContains(t, text, "77")
	require.NotContains(t, text, "init e0")
	require.Contains(t, text, "A hidden test shows what is wrong with the heap in append_kv")
	require.Contains(t, text, "llm_memory.c:12: lost")
	require.Contains(t, named(t, tests(r), "task1_hidden_traces").Output, "append e0 77 77")

	r.Findings = []grade.Finding{finding("task1_a", 1, grade.Heap, 55)}
	r.Findings[0].Same = []string{"task1_b", "task1_random_heap"}
	text = seen(t, r)
	require.Contains(t, text, "append e0 55 55")
	require.Contains(t, text, "The same mistake shows in: task1_b\\n")
	require.NotContains(t, text, "random")
}

func TestWhatIsRejectedHasOneTest(t *testing.T) {
	r := &grade.Report{MaxScore: 10, Rejected: &grade.Rejection{Stage: grade.Compile, Text: "line 3: error"}}
	all := tests(r)
	require.Len(t, all, 1)
	require.Equal(t, 10.0, all[0].MaxScore)
	require.Zero(t, *all[0].Score)
	require.Equal(t, Visible, all[0].Visibility)
	require.Contains(t, all[0].Output, "line 3: error")
	require.Contains(t, summary(class.Upload{Name: "a.c"}, r, all), `Graded as llm_memory.c: "a.c"`)
}

func TestALongOutputIsCut(t *testing.T) {
	r := &grade.Report{MaxScore: 10, Rejected: &grade.Rejection{Stage: grade.Compile, Text: strings.Repeat("é", maxText)}}
	out := tests(r)[0].Output
	require.Less(t, len(out), maxText+100)
	require.Contains(t, out, "(the rest is left out)")

	r = passing()
	f := finding("task1_a", 1, grade.Directed, 1)
	for range 1000 {
		f.Ops = append(f.Ops, f.Ops[1])
	}
	f.Step = 1001
	r.Findings = []grade.Finding{f}
	out = named(t, tests(r), "task1_a").Output
	require.Contains(t, out, "    # 962 steps before\n")
	require.NotContains(t, out, "int main")
}

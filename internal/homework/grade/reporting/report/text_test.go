package report_test

import (
	"strings"
	"testing"

	"github.com/fatih/color"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/reporting/report"
)

func written(t *testing.T, r *grade.Report) string {
	t.Helper()
	color.NoColor = true
	var b strings.Builder
	require.NoError(t, report.WriteText(&b, r))
	return b.String()
}

// one returns a report with one mistake, in task 2. No trace of task 5 was played.
func one() *grade.Report {
	r := &grade.Report{File: "a.c", Score: 90, MaxScore: 100, Rules: "2.abc"}
	for task := 1; task <= 4; task++ {
		r.Tests = append(r.Tests, grade.Test{Task: task, Part: grade.PartDirected, Status: grade.Passed})
	}
	passed := [grade.Tasks]grade.Status{grade.Passed, grade.Passed, grade.Passed, grade.Passed, grade.Passed}
	r.Stages = append(r.Stages, grade.Stage{Name: grade.Gate, Tasks: passed}, grade.Stage{Name: grade.Directed, Tasks: passed})
	r.Stages[1].Tasks[1] = grade.Failed
	op := trace.Op{Kind: trace.Free, A: 1}
	r.Findings = []grade.Finding{{Name: "task2_x", Task: 2, Gain: 6.2, Ops: []trace.Op{op}, Lines: []string{"llm_memory.c:7: \x1b[2J"},
		Difference: &compare.Difference{Op: op, Field: "field", Expected: "1", Actual: "2\x07"}}}
	r.Advice = []grade.Advice{{Name: "gate_main", Text: "llm_memory.c:3: main"}}
	return r
}

func TestAReportAsText(t *testing.T) {
	text := written(t, one())
	require.Contains(t, text, "fixing it gives back +6.2 points")
	require.Contains(t, text, "advice, which costs nothing: gate_main\n  llm_memory.c:3: main\n")
	text = words(text)
	require.Contains(t, text, "directed traces passed failed passed passed not run")
	require.Contains(t, text, "Memcheck not run not run not run not run not run")

	r := one() // Valgrind is missing, and all else is right
	r.Findings, r.Score = nil, 100
	require.Contains(t, written(t, r), "Memcheck          not run")

	r = one()
	r.Replay = true
	require.NotContains(t, written(t, r), " of 100 points")
	require.NotContains(t, written(t, r), "gives back")
}

func TestAFindingStandsInOnePlace(t *testing.T) {
	r := one()
	f := &r.Findings[0]
	f.Sentence, f.Same, f.Lines = "the sentence", []string{"task2_y"}, []string{"llm_memory.c:7: Invalid read"}
	f.Ops[0] = trace.Op{Kind: trace.Init, A: 64, B: 3072}
	f.Op, f.Actual = f.Ops[0], "2"
	text := written(t, r)
	require.True(t, strings.HasPrefix(text, f.Headline()+`
  llm_memory.c:7: Invalid read
  handout:  the sentence
  field
  expected: 1
  actual:   2
  after:
    init e0 64 3072    # a pool of 3 GiB: offsets in it do not fit in an int

  seen in:  task2_x
  also in:  task2_y
  fixing it gives back +6.2 points

advice, which costs nothing: gate_main
`), "%s", text)
	require.Equal(t, 1, strings.Count(text, f.Headline()))
}

func TestNothingOfASubmissionMovesTheCursor(t *testing.T) {
	r := one()
	r.File, r.Notes = "\x1b[31m.c", []string{"\x1b]0;x\x07"}
	text := written(t, r)
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "\x07")
	require.Contains(t, text, `\x1b[31m.c: 90.0 of 100 points`)
	r = &grade.Report{File: "b.c", MaxScore: 100, Rejected: &grade.Rejection{Stage: grade.Compile, Text: "b.c does not compile:\nb.c:1:1: error: \x1b[31m\n"}}
	require.NotContains(t, written(t, r), "\x1b")
	var b strings.Builder
	require.NoError(t, report.WriteLine(&b, r))
	require.Equal(t, `b.c: 0.0 of 100 points: b.c:1:1: error: \x1b[31m`+"\n", b.String())
}

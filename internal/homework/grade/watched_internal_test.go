package grade

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/supervise"
	"llmmemory/internal/homework/grade/judging/compare"
)

// Ensure that a finding costs the same points even if its replay is too slow on this machine. The report must give the
// reason for the stage that was not run.
func TestAReplayThatIsTooSlowChangesNoPoints(t *testing.T) {
	death := func(actual string) compare.Difference {
		return compare.Difference{Channel: compare.Death, Actual: actual}
	}
	for _, c := range []struct {
		name   string
		shows  compare.Difference
		slow   error
		points bool // of the task's memory are lost
	}{
		{"a bad access", death("it uses a pointer that is NULL (the process ended by segmentation fault)"), cputime.ErrSlow, true},
		{"a bad address", death("the process ended by bus error"), cputime.ErrStarved, true},
		{"a division by zero", death("the process ended by floating point exception"), cputime.ErrSlow, true},
		{"a failed assert", death("the process ended by aborted"), cputime.ErrSlow, false},
		{"an exit", death("the process ended with exit status 0"), cputime.ErrSlow, false},
		{"a bad access that hangs under Memcheck", death("the process ended by segmentation fault"), cputime.ErrTime, true},
		{"a leak", compare.Difference{Channel: compare.Heap, Field: compare.Leaks}, cputime.ErrSlow, false}, // keepHeap takes them
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGrading(&Grader{}, &Report{}, nil, nil)
			g.report.Stages.begin(Memcheck, false)
			c.shows.Op = trace.Op{Kind: trace.Append}
			g.report.Findings = []Finding{{Task: 4, Ops: []trace.Op{c.shows.Op}, Difference: &c.shows}}
			require.NoError(t, g.replayFindings(Memcheck, func(supervise.Steps) ([]supervise.Finding, error) {
				return nil, fmt.Errorf("memcheck: %w: it took 4.8s", c.slow)
			}))
			require.Equal(t, [Tasks]Status{Passed, Passed, Passed, NotRun, Passed}, g.report.Stages.find(Memcheck).Tasks)
			require.Equal(t, c.points, g.lost[PartMemory][4])
			require.Equal(t, []string{fmt.Sprintf("Memcheck: not run for task 4: memcheck: %v: it took 4.8s", c.slow)}, g.report.Notes)
		})
	}
}

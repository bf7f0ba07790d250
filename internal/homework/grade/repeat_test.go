package grade_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

var repeats = flag.Int("repeat", 0, "grade the whole corpus N times and check that nothing differs")

// ubuntu lists the flags that the compilers of Ubuntu 22.04 and 24.04 add by default.
var ubuntu = []string{"-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-Wformat", "-Wformat-security",
	"-fcf-protection", "-fstack-clash-protection", "-fPIE"}

// Ensure that a file gets the same score and the same findings each time, also with other compiler flags.
func TestTheSameFileGetsTheSameResult(t *testing.T) {
	if *repeats == 0 {
		level.SkipNormal(t)
	}
	here, there := newGrader(t), newGrader(t, ubuntu...)
	if !level.Exhaustive() && *repeats == 0 {
		here.LeaveOutSweeps()
		there.LeaveOutSweeps()
	}
	for i, m := range mutants(t) {
		times := *repeats
		if times == 0 {
			if i%level.Pick(1000, 11) != 0 {
				continue
			}
			times = 1
		}
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			file := put(t, m)
			first, err := here.File(file)
			require.NoError(t, err)
			for range times - 1 {
				again, err := here.File(file)
				require.NoError(t, err)
				requireSame(t, first, again)
			}
			other, err := there.File(file)
			require.NoError(t, err)
			if other.Rejected == nil || m.Kind == corpus.Rejected {
				requireSame(t, first, other)
			}
		})
	}
}

func requireSame(t *testing.T, a, b *grade.Report) {
	t.Helper()
	require.Equal(t, a.Score, b.Score)
	require.Equal(t, a.Failed(), b.Failed())
	require.Equal(t, len(a.Findings), len(b.Findings))
	for i, f := range a.Findings {
		require.Equal(t, f.Name, b.Findings[i].Name)
		require.Equal(t, f.Ops, b.Findings[i].Ops)
	}
}

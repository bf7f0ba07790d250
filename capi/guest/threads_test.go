package guest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// A mode is one of the cases of a program of testdata/guest. times is the number of repetitions that the program gets
// as an argument.
type mode struct{ name, times string }

func eachMode(t *testing.T, prog string, modes []mode) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			succeed(t, t.TempDir(), nil, prog, m.name, m.times)
		})
	}
}

var threadModes = []mode{
	{"own", "2000"},
	{"one", "2000"},
	{"short", "10"},
	{"crowd", "20"},
	{"owner", "50"},
}

func TestThreadsLeaveAConsistentState(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		eachMode(t, w.compile(t, "threads"), threadModes)
	})
}

// Ensure that a process ends with its last thread, as with plain C, although the runtime's threads still run.
func TestAProcessWhoseMainLeavesEndsWithItsLastThread(t *testing.T) {
	level.SkipNormal(t)
	each(t, append([]way{plainC}, everyWay...), func(t *testing.T, w way) {
		prog := w.compile(t, "main_leaves")
		for _, last := range []string{"detached", "joined"} {
			r := succeed(t, t.TempDir(), nil, prog, last)
			require.Equal(t, "8 free\n", r.stdout, last)
		}
	})
}

func TestTheFirstCallOfASecondThreadNeverMeetsTheFirstInside(t *testing.T) {
	level.SkipNormal(t)
	prog := shared.compile(t, "second")
	succeed(t, t.TempDir(), nil, prog, level.Pick("20", "200"))
}

func TestThreadsAreCleanUnderPlainValgrind(t *testing.T) {
	level.SkipNormal(t)
	each(t, level.Pick([]way{shared}, linked), func(t *testing.T, w way) {
		prog := w.compile(t, "threads")
		for _, m := range level.Pick([]mode{{"one", "1"}}, threadModes) {
			t.Run(m.name, func(t *testing.T) {
				requireClean(t, memcheck(t, nil, prog, m.name, level.Pick("1", "2")))
			})
		}
		if level.Exhaustive() {
			t.Run("second", func(t *testing.T) {
				requireClean(t, memcheck(t, nil, w.compile(t, "second"), "0", "1", "96"))
			})
		}
	})
}

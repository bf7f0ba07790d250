package guest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var forkModes = []mode{
	{"calling", level.Pick("25", "1000")},
	{"together", level.Pick("10", "20")},
	{"handler", level.Pick("40", "100")},
	{"cancelled", "20"},
	{"ending", level.Pick("80", "200")},
}

// Ensure that in the child of a fork every engine is consistent and no lock is held.
func TestAThreadForksWhileOthersCall(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		eachMode(t, w.compile(t, "forking"), forkModes)
	})
}

func TestAThreadForksOnOneProcessor(t *testing.T) {
	level.SkipNormal(t)
	need(t, "taskset")
	succeed(t, t.TempDir(), nil, "taskset", "-c", "0", shared.compile(t, "forking"), "calling", level.Pick("20", "100"))
}

func TestForkingThreadsAreCleanUnderPlainValgrind(t *testing.T) {
	level.SkipNormal(t)
	for range level.Pick(1, 20) { // if a fork stopped the runtime's monitor while it slept, one run in ten hung
		forkTogetherUnderValgrind(t)
	}
}

func forkTogetherUnderValgrind(t *testing.T) {
	t.Helper()
	r := underValgrind(t, nil, "--leak-check=full", "--error-exitcode=9", "--errors-for-leak-kinds=definite",
		shared.compile(t, "forking"), "together", "1", level.Pick("3", "8"))
	require.Zero(t, r.status, r.stderr) // children keep what glibc allocated for the parent's threads, as in plain C
	require.Contains(t, r.stderr, nothingLeft)
}

// Ensure that the library visits a sleeping thread of the Go runtime only a few times (capi/visit.c). If it did not
// recognize that the thread sleeps, it would visit the thread tens of thousands of times.
func TestAThreadOfTheRuntimeIsStoppedAtTheFirstVisits(t *testing.T) {
	level.SkipNormal(t)
	prog := shared.compile(t, "visits")
	succeed(t, t.TempDir(), nil, prog, "5")
	requireClean(t, memcheck(t, nil, prog, "0"))
}

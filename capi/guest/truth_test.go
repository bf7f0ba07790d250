package guest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const strict = "LLM_MEMORY_STRICT=1"

func TestStrictModeFindsWhatAWalkOfTheListFinds(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		cutOut := w.compile(t, "cut_out")
		succeed(t, t.TempDir(), []string{strict}, cutOut, "gone")
		succeed(t, t.TempDir(), []string{strict}, cutOut, "moved")
		for _, program := range []string{"rearranged", "many"} {
			succeed(t, t.TempDir(), []string{strict}, w.compile(t, program))
		}
	})
}

// If this fails the condition in llm_memory.h about stretches can go.
func TestOnlyStrictModeNoticesAStretchThatLeavesAsAWhole(t *testing.T) {
	t.Parallel()
	prog := shared.compile(t, "cut_out")
	for _, value := range []string{"", "0", "yes"} {
		for _, mode := range []string{"gone", "moved"} {
			r := run(t, t.TempDir(), []string{"LLM_MEMORY_STRICT=" + value}, prog, mode)
			require.Equal(t, 1, r.status, r.stderr)
		}
	}
}

func TestRearrangedListsAreReadAsAWalkReadsThem(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		prog := w.compile(t, "rearranged")
		succeed(t, t.TempDir(), nil, prog) // under Valgrind in TestNothingIsLeftUnderValgrind
	})
}

func TestAStateThatContradictsItselfCrashesNothing(t *testing.T) {
	each(t, someWays(), func(t *testing.T, w way) {
		prog := w.compile(t, "contradictory")
		for _, env := range [][]string{nil, {strict}} {
			succeed(t, t.TempDir(), env, prog) // under Valgrind in TestATesterMayFreeAndBringTablesByHand
		}
	})
}

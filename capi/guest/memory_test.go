package guest_test

import (
	"testing"

	"llmmemory/internal/testkit/level"
)

func TestAGibibyteOfAddressSpaceIsEnough(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		for range level.Pick(5, 20) { // where the heap lies in the address space is chance
			succeed(t, t.TempDir(), nil, w.compile(t, "limited"), w.compile(t, "many"))
		}
	})
}

func TestWhateverAllocationFailsTheCallIsRefusedAndNothingHasChanged(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		// The program defines its own malloc, so the compiler must not assume that malloc is the standard function.
		succeed(t, t.TempDir(), nil, w.compile(t, "exhausted", "-fno-builtin"))
	})
}

func TestATesterMayFreeAndBringTablesByHand(t *testing.T) {
	level.SkipNormal(t)
	each(t, level.Pick([]way{archive}, everyWay), func(t *testing.T, w way) {
		need(t, "valgrind")
		requireClean(t, run(t, t.TempDir(), nil, script(), w.compile(t, "by_hand+contradictory"), "small"))
	})
}

package guest_test

import "testing"

var threadModes = []struct{ mode, rounds string }{
	{"own", "2000"},
	{"one", "2000"},
	{"short", "10"},
	{"crowd", "20"},
	{"owner", "50"},
}

func TestThreadsLeaveAConsistentState(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "threads")
		for _, m := range threadModes {
			t.Run(m.mode, func(t *testing.T) {
				succeed(t, t.TempDir(), nil, prog, m.mode, m.rounds)
			})
		}
	})
}

func TestTheFirstCallOfASecondThreadNeverMeetsTheFirstInside(t *testing.T) {
	prog := shared.compile(t, "second")
	succeed(t, t.TempDir(), nil, prog, "100")
}

func TestThreadsAreCleanUnderPlainValgrind(t *testing.T) {
	each(t, linked, func(t *testing.T, w way) {
		prog := w.compile(t, "threads")
		for _, m := range threadModes {
			t.Run(m.mode, func(t *testing.T) {
				requireClean(t, memcheck(t, nil, prog, m.mode, "2"))
			})
		}
		t.Run("second", func(t *testing.T) {
			requireClean(t, memcheck(t, nil, w.compile(t, "second"), "0"))
		})
	})
}

package guest_test

import (
	"slices"
	"strconv"
	"syscall"
	"testing"

	"llmmemory/internal/testkit/level"
)

func TestTheHostsHandlerCatchesAThousandFaultsBetweenCalls(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "faults")
		for _, when := range []string{"before", "after"} {
			for _, stack := range []string{"plain", "onstack"} {
				t.Run(when+" the first call, "+stack, func(t *testing.T) {
					succeed(t, t.TempDir(), nil, prog, when, stack)
				})
			}
		}
	})
}

func TestTheHostsTimeLimitJumpsOutOfItsOwnCodeAThousandTimes(t *testing.T) {
	level.SkipNormal(t)
	each(t, everyWay, func(t *testing.T, w way) {
		succeed(t, t.TempDir(), nil, w.compile(t, "timeouts"))
	})
}

func TestTheRuntimesThreadsTakeNoneOfTheHostsSignals(t *testing.T) {
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "blocked")
		for i, signal := range []syscall.Signal{
			syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPROF, syscall.SIGCHLD,
		} {
			if !level.Exhaustive() && i%len(everyWay) != slices.Index(everyWay, w) { // each signal in one way
				continue
			}
			t.Run(signal.String(), func(t *testing.T) {
				succeed(t, t.TempDir(), nil, prog, strconv.Itoa(int(signal)))
			})
		}
	})
}

func TestASignalEvery100MicrosecondsDisturbsNoCall(t *testing.T) {
	level.SkipNormal(t)
	each(t, everyWay, func(t *testing.T, w way) {
		prog := w.compile(t, "interrupted")
		for i, stack := range []string{"plain", "onstack"} {
			if !level.Exhaustive() && i != slices.Index(everyWay, w)%2 {
				continue
			}
			for _, threads := range level.Pick([]string{"8"}, []string{"1", "8"}) {
				t.Run(stack+" handler, threads "+threads, func(t *testing.T) {
					succeed(t, t.TempDir(), nil, prog, stack, threads)
				})
			}
		}
	})
}

package benchtest

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Work does the work that is measured, once. i counts the calls, so that each call can use different memory.
type Work func(i int)

// If a Work takes at most half of minTime, ByTurns calls it between two readings of the clock as often as it fits in
// minTime.
const minTime = 4 * time.Millisecond

// ByTurns runs the works alternately, in as many rounds as b has iterations. It returns the time of one call for each
// work and round. If threads is 1, this is the processor time of the process, otherwise the elapsed time.
func ByTurns(b *testing.B, threads int, works ...Work) [][]time.Duration {
	clock := int32(unix.CLOCK_MONOTONIC)
	if threads == 1 {
		clock = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	now := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(clock, &t); err != nil {
			b.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	times := make([][]time.Duration, len(works))
	calls, numCalls := make([]int, len(works)), make([]int, len(works))
	for i, w := range works {
		calls[i] = repeat(w)
	}
	for b.Loop() {
		for i, w := range works {
			start := now()
			for range calls[i] {
				w(numCalls[i])
				numCalls[i]++
			}
			times[i] = append(times[i], (now()-start)/time.Duration(calls[i]))
		}
	}
	b.ReportMetric(0, "ns/op") // the time of a round is meaningless
	return times
}

func repeat(w Work) int {
	w(0)
	start := time.Now()
	w(1)
	took := max(time.Since(start), 1)
	return int(max(1, minTime/took))
}

// Ratio returns the median of x/y over the rounds.
func Ratio(x, y []time.Duration) float64 {
	list := make([]float64, len(x))
	for i := range x {
		list[i] = float64(x[i]) / float64(y[i])
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// Median returns the median of times.
func Median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[len(times)/2]
}

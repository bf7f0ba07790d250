package speed

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// least is how long a measurement takes at least; shorter work is repeated.
const least = 4 * time.Millisecond

// A work is done once by each call; i counts the calls, so that each can take
// other memory.
type work func(i int)

// now is a time to be subtracted from a later one.
func (o Options) now() time.Duration {
	clock := int32(unix.CLOCK_MONOTONIC)
	if o.CPU {
		clock = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// alternate does works in turn, round after round, and returns how long one call of
// each took in each round.
func (o Options) alternate(works ...work) [][]time.Duration {
	times := make([][]time.Duration, len(works))
	calls := make([]int, len(works))
	for i, w := range works {
		calls[i] = repeat(w)
	}
	at := make([]int, len(works))
	for range o.Rounds {
		for i, w := range works {
			start := o.now()
			for range calls[i] {
				w(at[i])
				at[i]++
			}
			times[i] = append(times[i], (o.now()-start)/time.Duration(calls[i]))
		}
	}
	return times
}

// repeat returns the number of calls that take long enough.
func repeat(w work) int {
	w(0)
	start := time.Now()
	w(1)
	took := max(time.Since(start), 1)
	return int(max(1, least/took))
}

// ratio is the median of a/b over the rounds.
func ratio(a, b []time.Duration) float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func micros(a []time.Duration) float64 { return float64(median(a).Nanoseconds()) / 1e3 }

// must panics on an error: the measured calls do not fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func median(a []time.Duration) time.Duration {
	a = slices.Clone(a)
	slices.Sort(a)
	return a[len(a)/2]
}

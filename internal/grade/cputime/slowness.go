package cputime

import (
	"time"

	"llmmemory/internal/grade/sandbox"
)

// reference is the processor time of sandbox.Work on a machine whose slowness is 1, which
// is a slow one of the year 2020. Faster ones count as 1, too.
const reference = 40 * time.Millisecond

// Slowness is how many times slower than the reference this machine computes now. It is
// the most of three measures: too high a value only makes a limit longer.
func Slowness() (float64, error) {
	slowness := 1.0
	for range 3 {
		took, err := sandbox.Work()
		if err != nil {
			return 0, err
		}
		slowness = max(slowness, float64(took)/float64(reference))
	}
	return slowness, nil
}

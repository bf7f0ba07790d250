package cputime

import (
	"time"

	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// reference is the processor time of sandbox.Work on a machine whose slowness is 1. Faster machines have 1, too.
const reference = 40 * time.Millisecond

// Slowness returns how many times slower than the reference this machine computes now, at least 1. It is the largest of
// three measurements: too high a value only makes a limit longer.
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

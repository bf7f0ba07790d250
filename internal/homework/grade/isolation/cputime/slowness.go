package cputime

import (
	"time"

	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// reference is the processor time of sandbox.Work on a machine whose slowness is 1. Faster machines count as 1,
// too.
const reference = 40 * time.Millisecond

// Slowness returns by what factor this machine now computes more slowly than the reference, at least 1. It
// returns the largest of three measurements, because a value that is too high only makes a limit longer.
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

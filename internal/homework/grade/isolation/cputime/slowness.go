package cputime

import (
	"time"

	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// reference is the processor time of sandbox.Work on a machine whose slowness is 1.
const reference = 40 * time.Millisecond

// Slowness returns by what factor a computation is slower on this machine now than on a machine whose slowness is 1.
// The factor is at least 1.
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

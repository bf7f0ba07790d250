// Package gcpercent makes a test process collect garbage less often: when the heap has five times the size of the
// memory in use, as with GOGC=400. Test files import it in packages whose tests allocate much, keep little, and do not
// measure the size of the heap.
package gcpercent

import (
	"runtime/debug"

	"llmmemory/internal/testkit/level"
)

func init() {
	if !level.Exhaustive() {
		debug.SetGCPercent(400)
	}
}

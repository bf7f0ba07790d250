// Package gcpercent makes a test process collect garbage seldom: when the heap has grown to five times what is in
// use, as by GOGC=400. A test file imports it for that alone, in packages whose tests allocate much and hold little,
// and ask for the bytes that are allocated or in use, not for how large the heap becomes.
package gcpercent

import (
	"runtime/debug"

	"llmmemory/internal/testkit/level"
)

func init() {
	if !level.Long() {
		debug.SetGCPercent(400)
	}
}

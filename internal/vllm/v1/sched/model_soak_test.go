package sched

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/testkit/level"
)

// resident is the memory of this process, in bytes.
func resident(t *testing.T) int {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

// Ensure that ten minutes of random traffic with everything on leave every
// slot right and memory flat. Each round draws a configuration and plays many requests:
// connectors, steps in flight, priorities, drafts, adapters, images, forks, holds,
// aborts, failed steps and loads, resets.
func TestTenMinutesOfTraffic(t *testing.T) {
	if !level.Long() {
		t.Skip("make test-long")
	}
	start, rounds, before := time.Now(), 0, 0
	for time.Since(start) < 10*time.Minute {
		rapid.Check(t, func(t *rapid.T) {
			config := drawConfig
			if rapid.Bool().Draw(t, "pressure") {
				config = underPressure
			}
			newEngine(t, config(t)).traffic(t)
		})
		if rounds++; rounds == 1 {
			before = resident(t)
		}
	}
	after := resident(t)
	t.Logf("%d rounds, %d MB after the first, %d MB at the end", rounds, before>>20, after>>20)
	require.Less(t, after, before+before/2+32<<20)
}

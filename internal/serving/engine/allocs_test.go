package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/serving/engine"
)

// Ensure that decode steps of a batch of eight do not allocate memory. This includes the engine, the scheduler, the
// model, and the client that reads the streams. The first request makes all arrays grow to their final length.
func TestASteadyStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the runtime's own caches
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoAsyncScheduling %v", alone), func(t *testing.T) {
			watch := &allocations{minimum: ^uint64(0)}
			e := startWorkers(t, 1, func(c *engine.Config) { c.NoAsyncScheduling = alone }, watch)
			r := request(story+"The code", 4*window)
			r.IgnoreEOS, r.N, r.Temperature, r.TopP = true, 8, 1.5, 0.9
			r.LogitBias = map[int32]float32{}
			for id := int32(128); id < 256; id++ {
				r.LogitBias[id] = -100 // whole characters: a string is made of the parts of one
			}
			for turn := range 5 {
				s, err := e.Submit(r)
				require.NoError(t, err)
				if turn > 0 {
					watch.stream.Store(s)
				}
				for l := e.Load(); l.Running+l.Waiting > 0; l = e.Load() {
					time.Sleep(time.Millisecond) // Eventually allocates
				}
				watch.stream.Store(nil)
				if turn > 0 && watch.windows.Load() > 0 && atomic.LoadUint64(&watch.minimum) == 0 {
					return
				}
			}
			require.Positive(t, watch.windows.Load(), "no %d steps were counted", window)
			require.Zero(t, atomic.LoadUint64(&watch.minimum), "in %d steps", window)
		})
	}
}

// window is the number of steps in one measurement. The batch fills several blocks in a window. The Go runtime
// sometimes allocates memory for itself, so the test passes if one of the windows has no allocation.
const window = 60

// allocations reads a stream after each step, and counts the allocations of the process in windows of
// consecutive steps.
type allocations struct {
	engine.NoObserver
	stream  atomic.Pointer[engine.Stream]
	steps   int // of the stream
	first   uint64
	windows atomic.Int64
	minimum uint64 // of all windows
}

func (a *allocations) Step(r engine.StepReport) {
	s := a.stream.Load()
	if s == nil || r.Decodes != 8 {
		a.steps = 0
		return
	}
	_, _ = s.Next(endedContext) // what there is
	if a.steps++; a.steps%window != 1 {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if a.steps > window {
		atomic.StoreUint64(&a.minimum, min(a.minimum, m.Mallocs-a.first))
		a.windows.Add(1)
	}
	a.first = m.Mallocs
}

// endedContext is a context that is done.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

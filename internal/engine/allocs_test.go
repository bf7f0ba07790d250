package engine_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/invariants"
)

// Ensure that the steps of a batch of eight that decode, whose answers are read, allocate
// nothing, neither in the engine nor in who reads.
func TestASteadyStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	watch := &allocations{}
	e := startObserved(t, func(c *engine.Config) { c.MaxModelLen, c.KVCacheBytes = 700, 64<<20 }, watch)
	r := request(story+"The code", 600)
	r.IgnoreEOS, r.N, r.Temperature, r.TopP = true, 8, 1.5, 0.9
	for watch.counted.Load() == 0 { // again, if this goroutine was so late that most steps were over
		s, err := e.Submit(r)
		require.NoError(t, err)
		watch.stream.Store(s)
		for l := e.Load(); l.Running+l.Waiting > 0; l = e.Load() {
			time.Sleep(time.Millisecond) // Eventually allocates
		}
		watch.stream.Store(nil)
	}
	// The runtime may allocate now and then for itself.
	require.Less(t, watch.counted.Load()-1, uint64(countedSteps)/20, "in %d steps", countedSteps)
}

const (
	settledSteps = 20
	countedSteps = 300
)

// allocations reads a stream after each step, and counts what the process allocates in steps
// that follow each other.
type allocations struct {
	stream  atomic.Pointer[engine.Stream]
	steps   int // of the stream
	first   uint64
	counted atomic.Uint64 // and one more; 0: not yet
}

func (a *allocations) Step(engine.StepReport) {
	s := a.stream.Load()
	if s == nil {
		a.steps = 0
		return
	}
	_, _ = s.Next(over) // what there is
	if a.steps++; a.steps != settledSteps && a.steps != settledSteps+countedSteps {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if a.steps == settledSteps {
		a.first = m.Mallocs
	} else {
		a.counted.Store(m.Mallocs - a.first + 1)
	}
}
func (a *allocations) FirstToken(time.Duration)      {}
func (a *allocations) NextToken(time.Duration)       {}
func (a *allocations) Finished(engine.RequestReport) {}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

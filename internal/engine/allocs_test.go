package engine_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/invariants"
)

// Ensure that the steps of a batch that decodes, and whose answers are read, allocate nothing, neither
// in the engine nor in who reads.
func TestASteadyStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	const from, to = 100, 500
	watch := &allocations{from: from, to: to}
	e := startObserved(t, func(c *engine.Config) { c.MaxModelLen, c.KVCacheBytes = 700, 64<<20 }, watch)
	var wait sync.WaitGroup
	for i := range 8 {
		r := request(story+"The code", 600)
		r.IgnoreEnd = true
		if i%2 == 1 {
			r.Temperature, r.TopP, r.Seed = 1, 0.9, uint64(i)
		}
		s, err := e.Submit(r)
		require.NoError(t, err)
		wait.Go(func() {
			for {
				events, err := s.Next(t.Context())
				if err != nil || events == nil {
					return
				}
			}
		})
	}
	wait.Wait()
	require.Greater(t, watch.steps, to)
	t.Logf("%d allocations in %d steps", watch.last-watch.first, to-from)
	// Buffers of readers grow as far as a reader has once lagged behind, and the runtime has
	// a few allocations in between for itself.
	require.Less(t, watch.last-watch.first, uint64(to-from)/4, "in %d steps", to-from)
}

// allocations counts those of the process between two steps.
type allocations struct {
	from, to, steps int
	first, last     uint64
}

func (a *allocations) Step(engine.StepReport) {
	a.steps++
	if a.steps != a.from && a.steps != a.to {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	a.first, a.last = a.last, m.Mallocs
}
func (a *allocations) FirstToken(time.Duration)      {}
func (a *allocations) NextToken(time.Duration)       {}
func (a *allocations) Finished(engine.RequestReport) {}

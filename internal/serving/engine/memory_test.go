package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
)

// emptyChanges counts changes in which nothing happened.
type emptyChanges struct{ empty atomic.Int64 }

func (c *emptyChanges) Active() bool { return true }

func (c *emptyChanges) Memory(m *engine.MemoryChange) bool {
	if m.Iteration.Idle() && len(m.Left) == 0 {
		c.empty.Add(1)
	}
	return true
}

// Ensure that the engine does not call the observer for a step in which nothing happens. The engine schedules such a
// step when all requests are cancelled while an earlier step is computed.
func TestAStepWithoutRowsIsNotShown(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	seen := &emptyChanges{}
	e.WatchMemory(seen)
	for range 30 {
		r := request(strings.Repeat(story, 2), 200)
		r.IgnoreEOS = true
		s, err := e.Submit(r)
		require.NoError(t, err)
		_, err = s.Next(t.Context())
		require.NoError(t, err)
		s.Cancel()
	}
	ask(t, e, request(story, 2)) // after which no step of the others is in flight
	require.Zero(t, seen.empty.Load())
}

// Ensure that 8-bit keys and values take half the memory of 16-bit ones. Int8 also stores a scale of 4
// bytes for each token and head.
func TestEightBitsHoldTwiceTheBlocks(t *testing.T) {
	blocks := func(d attention.DType) (blocks, head int) {
		e := start(t, func(c *engine.Config) { c.KVCacheDType = d })
		return e.Load().Blocks, e.Config().Model.HeadDim
	}
	f16, head := blocks(attention.F16)
	for d, size := range map[attention.DType]int{attention.E4M3: head, attention.E5M2: head, attention.Int8: head + 4} {
		n, _ := blocks(d)
		require.InDelta(t, f16*2*head/size, n, 3, d)
	}
}

package sched

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
)

func longContext(t *testing.T) *Scheduler {
	if invariants.Enabled {
		t.Skip("a check of the whole state after each of thousands of calls takes minutes")
	}
	c := large(10_000)
	c.MaxNumSeqs, c.Cache.MaxModelLen = 64, 131_072
	return newSmall(t, c)
}

func held(oldHeap uint64) int64 { return int64(heap() - oldHeap) }

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one finishes a collection that has begun
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const mib = 1 << 20

// Ensure that a waiting request takes memory only for its prompt. Finished requests must leave little memory in use.
func TestWaitingRequestsTakeMemoryForTheirPrompts(t *testing.T) {
	s := longContext(t)
	before := heap()
	ids := make([]ID, 1088)
	for i := range ids {
		ids[i] = add(t, s, Spec{Tokens: tokens(4, i), MaxTokens: 131_000})
	}
	waiting := held(before)
	t.Logf("waiting: %d bytes", waiting)
	require.Less(t, waiting, int64(4*mib))
	require.Equal(t, len(ids), s.Abort(ids...))
	aborted := held(before)
	t.Logf("aborted: %d bytes", aborted)
	require.Less(t, aborted, int64(mib))
	runtime.KeepAlive(s)
}

func TestRequestsThatHaveRunLeaveLittle(t *testing.T) {
	h := &host{Scheduler: longContext(t), t: t}
	before := heap()
	for range 17 {
		ids := make([]ID, 64)
		for i := range ids {
			ids[i] = h.add(100, i, Spec{MaxTokens: 131_000})
		}
		h.run(1)
		require.Len(t, h.step.Rows, 64)
		running := held(before)
		t.Logf("running: %d bytes", running)
		require.Less(t, running, int64(8*mib))
		require.Equal(t, len(ids), h.Abort(ids...))
	}
	long := h.add(100_000, 1, Spec{MaxTokens: 10})
	h.Abort(long)
	gone := held(before)
	t.Logf("gone: %d bytes", gone)
	require.Less(t, gone, int64(8*mib))
	runtime.KeepAlive(h)
}

func TestForksTakeMemoryForTheirPrompts(t *testing.T) {
	for _, test := range []struct {
		name   string
		prompt int
		limit  int64
	}{
		{"of a short prompt", 4, 4 * mib},
		{"of a long prompt", 8000, 6 * mib}, // 64 requests run, with 32 KB of tokens and 16 KB of hashes each
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &host{Scheduler: longContext(t), t: t}
			before := heap()
			parent := h.add(test.prompt, 1, Spec{MaxTokens: 131_000})
			h.run(1)
			for range 127 {
				h.fork(parent, Child{Last: -1})
			}
			require.Equal(t, 64, h.Monitor.Load().Running)
			forked := held(before)
			t.Logf("forked: %d bytes", forked)
			require.Less(t, forked, test.limit)
			h.run(1)
			runtime.KeepAlive(h)
		})
	}
}

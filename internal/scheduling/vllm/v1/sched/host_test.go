package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A host is an engine whose model samples given tokens.
type host struct {
	*Scheduler
	t     *testing.T
	step  Step
	steps []Step // in flight
	out   Outcome
}

func newHost(t *testing.T, c Config) *host { return &host{Scheduler: newSmall(t, c), t: t} }

func (h *host) add(n, seed int, spec Spec) ID {
	spec.Tokens = tokens(n, seed)
	return add(h.t, h.Scheduler, spec)
}

func (h *host) schedule() []Row {
	require.NoError(h.t, h.Schedule(&h.step))
	require.NoError(h.t, h.Check())
	if len(h.step.Rows) > 0 {
		h.steps = append(h.steps, Step{Rows: slices.Clone(h.step.Rows)})
	}
	return slices.Clone(h.step.Rows)
}

func (h *host) update(token int32) []Done {
	var counts, sampled []int32
	for _, row := range h.steps[0].Rows {
		n := int32(0)
		if row.Samples {
			n = 1
			sampled = append(sampled, token)
		}
		counts = append(counts, n)
	}
	return h.end(counts, sampled...)
}

func (h *host) end(counts []int32, sampled ...int32) []Done {
	h.steps = h.steps[1:]
	require.NoError(h.t, h.Update(counts, sampled, &h.out))
	require.NoError(h.t, h.Check())
	return slices.Clone(h.out.Done)
}

// finish runs steps until no request can run. As many steps are in flight as the configuration allows.
func (h *host) finish(token int32) {
	for {
		if len(h.steps) < h.config.MaxConcurrentBatches && len(h.schedule()) > 0 {
			continue
		}
		if len(h.steps) == 0 {
			return
		}
		h.update(token)
	}
}

// lose preempts a running request, as if another request needed its blocks.
func (h *host) lose(id ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.live(id)
	h.removeRunning(r)
	h.preempt(r)
}

func (h *host) run(token int32) []Done {
	h.schedule()
	return h.update(token)
}

func (h *host) try(n int) {
	for range n {
		if len(h.schedule()) > 0 {
			h.update(1)
		}
	}
}

func (h *host) fork(parent ID, child Child) ID {
	id, err := h.Fork(parent, child)
	require.NoError(h.t, err)
	return id
}

func (h *host) fail() {
	require.NoError(h.t, h.StepFailed())
	require.NoError(h.t, h.Check())
	h.steps = nil
}

func (h *host) reset() {
	ok, err := h.Reset(true)
	require.NoError(h.t, err)
	require.True(h.t, ok)
}

func (h *host) rowOf(id ID) int {
	return slices.IndexFunc(h.step.Rows, func(r Row) bool { return r.ID == id })
}

func (h *host) unfinished() int {
	load := h.Monitor.Load()
	return load.Running + load.Waiting
}

func (h *host) table(id ID) []int32 { return h.tableOf(id, 0) }

func (h *host) tableOf(id ID, group int) []int32 {
	table, err := h.Monitor.Table(nil, id, group)
	require.NoError(h.t, err)
	return table
}

func (h *host) computed(id ID) int {
	computed, _, err := h.Monitor.NumComputedTokens(id)
	require.NoError(h.t, err)
	return computed
}

func (h *host) hashed(id ID) int {
	n := 0
	for _, block := range h.table(id) {
		if _, _, ok := h.cache.Pool.Primary(block); ok {
			n++
		}
	}
	return n
}

// loadFailed calls LoadFailed and returns the affected requests. It requires that Affected returns the same requests.
func (h *host) loadFailed(blocks ...int32) []ID {
	var before, out FailedLoad
	require.NoError(h.t, h.Transfers.Affected(&before, blocks...))
	require.NoError(h.t, h.Transfers.LoadFailed(&out, blocks...))
	require.Equal(h.t, before, out)
	return out.Affected
}

func (h *host) empty() {
	h.schedule()
	require.Equal(h.t, Load{FreeBlocks: h.cache.Pool.NumBlocks() - 1, Blocks: h.cache.Pool.NumBlocks() - 1}, h.Monitor.Load())
}

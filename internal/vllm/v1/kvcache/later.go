package kvcache

import (
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/vllm/v1/pool"
)

// A deferral is blocks that are given back when a step has been processed: until
// then the step may write to them, and a connector that gets them meanwhile is
// not ordered against that write (vllm/v1/RULES.md §19).
type deferral struct {
	step uint64
	ids  []int32 // of all groups, one after the other
}

// FreeAfter is Free for a request whose blocks a step in flight may still write:
// they are given back by Processed, all groups in one call, from the last block to
// the first, and then the tails (vllm/v1/RULES.md §2.6).
func (c *Cache) FreeAfter(r *Request, step uint64) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	ids := slices.Clone(c.forgetTails(r))
	for i := range r.tables {
		t := &r.tables[i]
		for _, id := range t.ids {
			if id != pool.Null {
				ids = append(ids, id)
			}
		}
		if t.owns {
			c.groups[i].owners--
		}
		t.forget()
	}
	c.deferFree(ids, step)
}

func (c *Cache) deferFree(ids []int32, step uint64) {
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		c.held[id]++
	}
	c.deferred = append(c.deferred, deferral{step, ids})
}

// Processed gives back what waits for steps up to this one. It stops at the
// first deferral that waits for a later step, as vLLM does.
func (c *Cache) Processed(step uint64) {
	for len(c.deferred) > 0 && c.deferred[0].step <= step {
		ids := c.deferred[0].ids
		c.deferred = c.deferred[1:]
		for _, id := range ids {
			c.release(id)
		}
		c.pool.FreeTable(ids)
	}
}

// NumDeferred is how many blocks wait for a step.
func (c *Cache) NumDeferred() int {
	n := 0
	for _, d := range c.deferred {
		n += len(d.ids)
	}
	return n
}

// Truncate shortens a hit to tokens, a multiple of every block. Of a Mamba group
// fewer blocks can be left.
func (h *Hit) Truncate(c *Cache, tokens int) {
	h.NumTokens = tokens
	for i := range h.Blocks {
		h.Blocks[i] = h.Blocks[i][:min(tokens/c.groups[i].BlockSize, len(h.Blocks[i]))]
	}
}

// Clear makes h the hit of no tokens.
func (h *Hit) Clear() {
	h.NumTokens = 0
	for i := range h.Blocks {
		h.Blocks[i] = h.Blocks[i][:0]
	}
}

// RemainingBlocks is how many blocks r still needs to hold its whole sequence.
func (c *Cache) RemainingBlocks(r *Request) int {
	whole := min(r.NumTokens(), c.config.MaxModelLen)
	d := demand{
		Alloc: &Alloc{}, local: r.computed, all: r.computed, total: r.computed,
		main: whole, slots: whole, computed: r.computed, capped: true,
	}
	return c.need(r, &d)
}

// LeaveWindows frees the blocks of r that nobody attends to once settled tokens
// are there.
func (c *Cache) LeaveWindows(r *Request, settled int) { c.leaveWindows(r, settled) }

// ComputedTable is the part of the block table of a group that holds computed
// tokens; the states of a Mamba group are not counted in tokens.
func (c *Cache) ComputedTable(r *Request, group int) []int32 {
	ids := r.tables[group].ids
	if c.groups[group].Kind == Mamba {
		return ids
	}
	return ids[:min(ceil(r.computed, c.groups[group].BlockSize), len(ids))]
}

// Recycles reports whether some group gives blocks back before a request ends.
func (c *Cache) Recycles() bool { return c.recycles }

// SetWaiting says that r, which was allocated for, does not run yet: the
// watermark counts for it again.
func (c *Cache) SetWaiting(r *Request) { r.running = false }

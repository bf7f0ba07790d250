package kvcache

import (
	"fmt"
	"slices"
)

// This file has what a scheduler with a connector needs besides (vllm/v1/RULES.md §19, §21).

// Evict removes the keys of a block, which may be in use.
func (c *Cache) Evict(id int32) error {
	if n := c.Pool.NumBlocks(); id < 0 || int(id) >= n {
		return fmt.Errorf("%w: block %d of a pool of %d", ErrRequest, id, n)
	}
	c.pool.Evict(id)
	return nil
}

// LeaveWindows frees the blocks outside the windows when settled tokens are computed.
func (r *Request) LeaveWindows(settled int) { r.cache.leaveWindows(r, settled) }

// SharedFrom reports whether a block of r that holds tokens from computed on is shared.
func (r *Request) SharedFrom(computed int) bool {
	c := r.cache
	for i := range r.tables {
		ids := r.tables[i].ids
		if slices.ContainsFunc(ids[min(computed/c.groups[i].BlockSize, len(ids)):], c.shared) {
			return true
		}
	}
	return false
}

// NoteUnwritten adds the blocks of r that hold tokens from computed on to Pending.NewBlocks again:
// a load that should have written them has failed (vLLM: record_blocks_for_zeroing).
func (r *Request) NoteUnwritten(computed int) {
	c := r.cache
	for i := range r.tables {
		ids := r.tables[i].ids
		c.noteNew(i, ids[min(computed/c.groups[i].BlockSize, len(ids)):])
	}
}

// RemainingBlocks returns how many more blocks r needs for its whole sequence.
func (r *Request) RemainingBlocks() int {
	c := r.cache
	whole := min(r.NumTokens(), c.Config.MaxModelLen)
	d := demand{
		Alloc: &Alloc{}, local: r.NumComputedTokens, all: r.NumComputedTokens, total: r.NumComputedTokens,
		main: whole, slots: whole, computed: r.NumComputedTokens, capped: true,
	}
	return c.need(r, &d)
}

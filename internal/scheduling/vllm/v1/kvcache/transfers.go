package kvcache

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// Transfers is what a scheduler with a connector needs besides: blocks whose contents come
// from elsewhere, or go there (vllm/v1/RULES.md §19, §21).
type Transfers struct{ c *Cache }

// Evict removes the keys of a block, which may be in use.
func (x Transfers) Evict(id int32) error {
	if n := x.c.pool.View.NumBlocks(); id < 0 || int(id) >= n {
		return fmt.Errorf("%w: block %d of a pool of %d", ErrRequest, id, n)
	}
	x.c.pool.Evict(id)
	return nil
}

// SetWaiting says that r, which was allocated for, does not run yet: the
// watermark counts for it again.
func (x Transfers) SetWaiting(r *Request) { r.running = false }

// LeaveWindows frees the blocks of r that nothing attends to once settled tokens
// are there.
func (x Transfers) LeaveWindows(r *Request, settled int) { x.c.leaveWindows(r, settled) }

// SharedFrom reports whether another table names a block of r that holds tokens from computed on.
func (x Transfers) SharedFrom(r *Request, computed int) bool {
	c := x.c
	for i := range r.tables {
		ids := r.tables[i].ids
		if slices.ContainsFunc(ids[min(computed/c.groups[i].BlockSize, len(ids)):], c.shared) {
			return true
		}
	}
	return false
}

// BlocksIn appends to dst the blocks of r that hold tokens from start to end, in groups
// with keys and values (vLLM's get_zeroing_block_ids_in_range).
func (x Transfers) BlocksIn(dst []int32, r *Request, start, end int) []int32 {
	c := x.c
	for i := range r.tables {
		g, ids := &c.groups[i], r.tables[i].ids
		if g.Kind == Mamba {
			continue
		}
		for _, id := range ids[min(start/g.BlockSize, len(ids)):min(ceil(end, g.BlockSize), len(ids))] {
			if id != pool.Null {
				dst = append(dst, id)
			}
		}
	}
	return dst
}

// NoteUnwritten adds the blocks of r that hold tokens from computed on to the new blocks again: a
// load that should have written them has failed (vLLM's record_blocks_for_zeroing).
func (x Transfers) NoteUnwritten(r *Request, computed int) {
	c := x.c
	for i := range r.tables {
		ids := r.tables[i].ids
		c.noteNew(i, ids[min(computed/c.groups[i].BlockSize, len(ids)):])
	}
}

// RemainingBlocks is how many blocks r still needs to hold its whole sequence.
func (x Transfers) RemainingBlocks(r *Request) int {
	c := x.c
	whole := min(r.NumTokens(), c.config.MaxModelLen)
	d := demand{
		Alloc: &Alloc{}, local: r.NumComputedTokens, all: r.NumComputedTokens, total: r.NumComputedTokens,
		main: whole, slots: whole, computed: r.NumComputedTokens, capped: true,
	}
	return c.need(r, &d)
}

// ComputedTable is the part of the block table of a group that holds computed
// tokens; the states of a Mamba group are not counted in tokens.
func (x Transfers) ComputedTable(r *Request, group int) []int32 {
	c := x.c
	ids := r.tables[group].ids
	if c.groups[group].Kind == Mamba {
		return ids
	}
	return ids[:min(ceil(r.NumComputedTokens, c.groups[group].BlockSize), len(ids))]
}

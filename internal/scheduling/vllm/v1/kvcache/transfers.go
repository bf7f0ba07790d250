package kvcache

import (
	"fmt"
	"slices"
)

// Only a scheduler with a connector needs the exported functions in this file (vllm/v1/RULES.md §19, §21).

// Evict removes the keys of a block, which may be in use.
func (c *Cache) Evict(id int32) error {
	if n := c.Pool.NumBlocks(); id < 0 || int(id) >= n {
		return fmt.Errorf("%w: block %d of a pool of %d", ErrRequest, id, n)
	}
	c.pool.Evict(id)
	return nil
}

// LeaveWindows frees the blocks of r that are before the windows of their groups. settled is the number of computed
// tokens without those of steps in flight.
func (r *Request) LeaveWindows(settled int) { r.cache.leaveWindows(r, settled) }

// SharedFrom reports whether another table names a block of r that contains the token at position pos or later tokens.
func (r *Request) SharedFrom(pos int) bool {
	c := r.cache
	for i := range r.tables {
		ids := r.tables[i].ids
		if slices.ContainsFunc(ids[min(pos/c.groups[i].BlockSize, len(ids)):], c.shared) {
			return true
		}
	}
	return false
}

// NoteUnwritten adds blocks of r to Pending.NewBlocks again: the block that contains position pos, and all blocks after
// it. A load should have written these blocks, but it has failed (vLLM: record_blocks_for_zeroing).
func (r *Request) NoteUnwritten(pos int) {
	c := r.cache
	for i := range r.tables {
		ids := r.tables[i].ids
		c.noteNew(i, ids[min(pos/c.groups[i].BlockSize, len(ids)):])
	}
}

// RemainingBlocks returns how many more free blocks r needs until all its tokens, at most MaxModelLen, are in blocks.
func (r *Request) RemainingBlocks() int {
	c := r.cache
	whole := min(r.NumTokens(), c.Config.MaxModelLen)
	d := demand{
		Alloc: &Alloc{}, local: r.NumComputedTokens, external: r.NumComputedTokens, total: r.NumComputedTokens,
		main: whole, slots: whole, computed: r.NumComputedTokens, capped: true,
	}
	return c.need(r, &d)
}

// A Tail is a block with a copy of a Mamba group's state at the end of a prompt. The state is at the last multiple of
// HashBlockSize in the prompt; a Tail exists only if this position is inside a block of the group. The copy is in no
// table: the request continues in its own block and overwrites the state there. A connector can send the Tail to
// another cache, whose requests can then hit the prompt up to this state (vLLM's partial_tail_offloads;
// vllm/v1/RULES.md §19).
type Tail struct {
	Request   *Request
	Group     int
	Block     int32
	NumTokens int // number of tokens before the state
}

// forgetTails removes the tails of r from the list for the next call of Take. It returns the blocks of the tails of r
// that Take has returned before. The caller must free these blocks.
func (c *Cache) forgetTails(r *Request) []int32 {
	if len(c.tails) > 0 {
		c.tails = slices.DeleteFunc(c.tails, func(t Tail) bool { return t.Request == r })
	}
	kept := r.kept
	r.kept = r.kept[:0]
	for _, id := range kept {
		c.release(id)
	}
	return kept
}

func (c *Cache) release(id int32) {
	if c.held[id]--; c.held[id] == 0 {
		delete(c.held, id)
	}
}

func (c *Cache) noteNew(i int, blocks []int32) {
	if c.Config.RecordNewBlocks && c.groups[i].Kind != Mamba {
		c.newBlocks[i] = append(c.newBlocks[i], blocks...)
	}
}

// takeTails appends the tails to dst, group by group. Their blocks are kept until the blocks of their requests are
// freed.
func (c *Cache) takeTails(dst []Tail) []Tail {
	for g := range c.groups {
		for i := range c.tails {
			t := c.tails[i]
			if t.Group != g {
				continue
			}
			r := t.Request
			r.kept = append(r.kept, t.Block)
			c.pool.Touch(r.kept[len(r.kept)-1:])
			c.held[t.Block]++
			dst = append(dst, t)
		}
	}
	clear(c.tails)
	c.tails = c.tails[:0]
	return dst
}

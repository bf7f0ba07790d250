package kvcache

import (
	"slices"

	"llmmemory/internal/vllm/v1/pool"
)

// A Tail is a block with the state of a Mamba group at the last hash of a prompt, inside a
// block of the group. No table names it: the request's own state has gone on. A connector
// can send it, so that elsewhere a prompt can be hit up to there (vLLM's
// partial_tail_offloads; vllm/v1/RULES.md §19).
type Tail struct {
	Request   *Request
	Group     int
	Block     int32
	NumTokens int // before the state
}

// TakeTails appends to dst the tails whose copies TakeCopies returns next, group by group.
// Each keeps its block until the blocks of its request are free.
func (c *Cache) TakeTails(dst []Tail) []Tail {
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

// forgetTails drops the tails of r that nobody took, and returns the blocks of the others,
// which are r's no more.
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

// noteNew remembers blocks that group i got from the pool, if they are to be zeroed.
func (c *Cache) noteNew(i int, blocks []int32) {
	if c.config.RecordNewBlocks && c.groups[i].Kind != Mamba {
		c.newBlocks[i] = append(c.newBlocks[i], blocks...)
	}
}

// TakeNewBlocks appends to dst the blocks that groups with keys and values have got
// since the last call, group by group (vLLM's take_new_block_ids).
func (c *Cache) TakeNewBlocks(dst []int32) []int32 {
	for i := range c.newBlocks {
		dst = append(dst, c.newBlocks[i]...)
		c.newBlocks[i] = c.newBlocks[i][:0]
	}
	return dst
}

// NoteUnwritten has the blocks of r returned by TakeNewBlocks once more that hold tokens
// from computed on: a load that should have written them has failed (vLLM's
// record_blocks_for_zeroing).
func (c *Cache) NoteUnwritten(r *Request, computed int) {
	for i := range r.tables {
		ids := r.tables[i].ids
		c.noteNew(i, ids[min(computed/c.groups[i].BlockSize, len(ids)):])
	}
}

// BlocksIn appends to dst the blocks of r that hold tokens from start to end, in groups
// with keys and values (vLLM's get_zeroing_block_ids_in_range).
func (c *Cache) BlocksIn(dst []int32, r *Request, start, end int) []int32 {
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

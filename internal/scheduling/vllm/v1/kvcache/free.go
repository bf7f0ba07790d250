package kvcache

import (
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Release says why Cache.Release frees the blocks of a request.
type Release uint8

const (
	Preempt   Release = iota // it waits again, and can hit its own blocks (vllm/v1/RULES.md §7)
	UndoAdmit                // it waits as if it had not been admitted
	Drop                     // it has ended and must not be used any more
)

// Release frees the blocks of r. If step is not 0, the step with this number may still write to the blocks. EndStep
// then frees them when this step has run.
func (c *Cache) Release(r *Request, reason Release, step uint64) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	c.free(r, step)
	r.NumComputedTokens, r.running = 0, false
	switch reason {
	case Preempt:
		r.NumPreemptions++
	case Drop:
		c.drop(r)
	}
}

// free frees the blocks of r in vLLM's order. In a table, the last block is freed first. If step is 0, the blocks of
// r's tails are freed before the tables (vllm/v1/RULES.md §2.4, §7).
//
// If step is not 0, EndStep frees the blocks in one call when that step has run. It frees the tails after the tables
// (§2.6).
func (c *Cache) free(r *Request, step uint64) {
	kept := c.forgetTails(r)
	var deferred []int32
	if step > 0 {
		deferred = slices.Clone(kept)
	} else {
		slices.Reverse(kept)
		c.pool.Free(kept)
	}
	for i := range r.tables {
		t := &r.tables[i]
		if step > 0 {
			deferred = append(deferred, t.ids...)
		} else {
			c.pool.Free(t.ids)
		}
		if t.owns {
			c.groups[i].owners--
		}
		t.forget()
	}
	c.deferFree(deferred, step)
}

// Limits of the memory that is reused after requests end.
const (
	maxSpare     = 256
	maxSparedLen = 8192
)

// Emptied returns an empty slice that reuses the array of s. If this array is too long to be kept, Emptied returns nil.
func Emptied[T any](s []T) []T {
	if cap(s) > maxSparedLen {
		return nil
	}
	return s[:0]
}

func (c *Cache) drop(r *Request) {
	for i := range c.copies {
		if c.copies[i].Request == r {
			c.copies[i].Request = nil
		}
	}
	last := len(c.live) - 1
	c.live[r.liveIndex] = c.live[last]
	c.live[r.liveIndex].liveIndex = r.liveIndex
	c.live[last] = nil
	c.live = c.live[:last]
	tables, content, kept, lent := r.tables, r.content, r.kept, r.lent
	*r = Request{cache: c, tables: tables, kept: Emptied(kept)}
	for i := range r.tables {
		r.tables[i].ids = Emptied(r.tables[i].ids)
	}
	if !lent {
		r.content.Tokens, r.content.Hashes = Emptied(content.Tokens), Emptied(content.Hashes)
	}
	if len(c.spare) < maxSpare {
		c.spare = append(c.spare, r)
	}
}

// EvictFrom removes the keys of the blocks of r that contain the token at position pos or later tokens.
func (r *Request) EvictFrom(pos int) {
	c := r.cache
	for i := range r.tables {
		t := &r.tables[i]
		for _, id := range t.ids[min(pos/c.groups[i].BlockSize, len(t.ids)):] {
			if id != pool.Null {
				c.pool.Evict(id)
			}
		}
	}
}

// Rewind reduces the number of computed tokens of r to numTokens, because later tokens were scheduled but not computed.
// r keeps its blocks, but blocks with tokens that were not computed lose their keys. A Mamba group overwrites its state
// and cannot go back, so with Mamba groups Rewind changes nothing and returns false.
func (r *Request) Rewind(numTokens int) bool {
	c := r.cache
	if !c.noMamba {
		return false
	}
	r.EvictFrom(numTokens)
	for i := range r.tables {
		t := &r.tables[i]
		t.registered = min(t.registered, numTokens/c.groups[i].BlockSize)
	}
	r.NumComputedTokens = numTokens
	return true
}

// EvictSince removes all keys of each block that got a key in the step with the given number or in a later step.
func (c *Cache) EvictSince(step uint32) {
	for id := range int32(c.Pool.NumBlocks()) {
		if c.Pool.InsertedSince(id, step) {
			c.pool.Evict(id)
		}
	}
}

// Reset removes the keys of all blocks if no block is in use, and reports whether it did.
func (c *Cache) Reset() bool {
	if !c.pool.Reset() {
		return false
	}
	c.Stats.Reset = true
	return true
}

// A deferral has blocks to free when a step has run. This step may still write to the blocks. If they were free, a
// connector could load other tokens into them before this write (vllm/v1/RULES.md §19).
type deferral struct {
	step uint64
	ids  []int32
}

func (c *Cache) deferFree(ids []int32, step uint64) {
	ids = slices.DeleteFunc(ids, func(id int32) bool { return id == pool.Null })
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		c.held[id]++
	}
	c.deferred = append(c.deferred, deferral{step, ids})
}

// leaveWindows frees the blocks of r that are before the windows of their groups. settled is the number of computed
// tokens, without the tokens of steps in flight. The windows of the tokens in flight keep their blocks, because the
// steps still read these blocks. In each group, leaveWindows frees the blocks from the last to the first
// (vllm/v1/RULES.md §8). For Mamba groups in align mode it also calls leaveState.
func (c *Cache) leaveWindows(r *Request, settled int) {
	if !c.recycles {
		return
	}
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		if skipped := g.skipped(settled); skipped > 0 {
			end := min(skipped/g.BlockSize, len(t.ids))
			start := end
			for start > 0 && t.ids[start-1] != pool.Null { // those before were freed already
				start--
			}
			c.pool.Free(t.ids[start:end])
			clear(t.ids[start:end])
		}
		if g.aligned() {
			c.leaveState(g, t, settled)
		}
	}
}

package kvcache

import (
	"fmt"
	"llmmemory/internal/invariants"
	"llmmemory/internal/vllm/v1/pool"
)

// Free gives the blocks of r back, group by group, each table from its end
// (vllm/v1/RULES.md §2.4, §7), after its tails. Without blocks it does nothing.
func (c *Cache) Free(r *Request) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if kept := c.forgetTails(r); len(kept) > 0 {
		c.pool.Free(kept)
	}
	for i := range r.tables {
		t := &r.tables[i]
		c.pool.FreeTable(t.ids)
		if t.owns {
			c.groups[i].owners--
		}
		t.forget()
	}
}

// Preempt frees r and makes it wait. Its tokens and hashes stay, so it hits its
// own blocks if they survive (vllm/v1/RULES.md §7).
func (c *Cache) Preempt(r *Request) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	c.Free(r)
	r.computed = 0
	r.preemptions++
	r.running = false
}

// UndoAdmit frees r as if it had never been allocated for.
func (c *Cache) UndoAdmit(r *Request) {
	c.Free(r)
	r.computed = 0
	r.running = false
}

// Evict removes the keys of a block, which may be in use.
func (c *Cache) Evict(id int32) error {
	if id < 0 || int(id) >= c.pool.NumBlocks() {
		return fmt.Errorf("%w: block %d of a pool of %d", ErrRequest, id, c.pool.NumBlocks())
	}
	c.pool.Evict(id)
	return nil
}

// EvictFrom removes the keys of r's blocks that hold tokens from computed on:
// they will not be computed.
func (c *Cache) EvictFrom(r *Request, computed int) {
	for i := range r.tables {
		t := &r.tables[i]
		for _, id := range t.ids[min(computed/c.groups[i].BlockSize, len(t.ids)):] {
			if id != pool.Null {
				c.pool.Evict(id)
			}
		}
	}
}

// Rewind moves r back to its first computed tokens, because what was scheduled
// after them was not computed. Its blocks stay, but those that hold later
// tokens lose their keys. A Mamba group overwrites its state and cannot go
// back: then nothing has changed and the answer is false.
func (c *Cache) Rewind(r *Request, computed int) bool {
	if !c.plain {
		return false
	}
	c.EvictFrom(r, computed)
	for i := range r.tables {
		t := &r.tables[i]
		t.registered = min(t.registered, computed/c.groups[i].BlockSize)
	}
	r.computed = computed
	return true
}

// EvictSince removes all keys that were inserted in a step or a later one,
// because these steps failed.
func (c *Cache) EvictSince(step uint32) {
	for id := range int32(c.pool.NumBlocks()) {
		if c.pool.InsertedSince(id, step) {
			c.pool.Evict(id)
		}
	}
}

// Reset forgets everything that is cached, if no block is in use, and reports
// whether that was so.
func (c *Cache) Reset() bool {
	if !c.pool.Reset() {
		return false
	}
	c.stats.Reset = true
	return true
}

// leaveWindows frees the blocks that nobody attends to once settled tokens are
// there, from the last one down to the first that was freed before, in one call
// for each group (vllm/v1/RULES.md §8).
func (c *Cache) leaveWindows(r *Request, settled int) {
	if !c.recycles {
		return
	}
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		if outside := g.skipped(settled); outside > 0 {
			c.leave(t, min(outside/g.BlockSize, len(t.ids)))
		}
		if g.aligned() {
			c.leaveState(g, t, settled)
		}
	}
}

func (c *Cache) leave(t *table, end int) {
	start := end
	for start > 0 && t.ids[start-1] != pool.Null {
		start--
	}
	c.pool.FreeTable(t.ids[start:end])
	clear(t.ids[start:end])
}

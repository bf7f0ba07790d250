package kvcache

import (
	"slices"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Copy is a pair of blocks whose bytes the worker must copy at the beginning
// of the step, before anything is written.
type Copy struct {
	Src, Dst int32
	Group    int
	Request  *Request // nil if it was dropped since
	Index    int      // slot of the request's table that names Dst now; -1: none does
}

// A Pending lists the work that the worker must do before it computes the rows of a step. Its arrays are used
// again.
type Pending struct {
	NewBlocks []int32 // with Config.RecordNewBlocks: that groups with keys and values have got, group by group
	Tails     []Tail  // with Config.HandOffTails
	Copies    []Copy
}

// Take moves the work that has become pending since the last call to dst, and adds to its NewBlocks (vLLM's
// take_new_block_ids). The blocks of copies are kept until then, so that they cannot be used again before the
// copy is known; if fence is not 0, they are kept until step number fence is over.
func (c *Cache) Take(dst *Pending, fence uint64) {
	for i := range c.newBlocks {
		dst.NewBlocks = append(dst.NewBlocks, c.newBlocks[i]...)
		c.newBlocks[i] = c.newBlocks[i][:0]
	}
	dst.Tails = c.takeTails(dst.Tails[:0])
	dst.Copies = c.takeCopies(dst.Copies[:0], fence)
}

// takeCopies appends the copies to dst, group by group.
func (c *Cache) takeCopies(dst []Copy, step uint64) []Copy {
	if len(c.copies) == 0 {
		return dst
	}
	ends := c.fresh[:0]
	for g := range c.groups {
		for i := range c.copies {
			if p := c.copies[i]; p.Group == g {
				dst = append(dst, p)
				ends = append(ends, p.Src, p.Dst)
			}
		}
	}
	slices.Reverse(ends) // they are freed from the last one
	clear(c.copies)
	c.copies = c.copies[:0]
	clear(c.pins)
	if step > 0 {
		c.deferFree(slices.Clone(ends), step)
	} else {
		c.pool.Free(ends)
	}
	c.fresh = ends[:0]
	return dst
}

// Withdraw takes back the copies of r that were not taken: r loses its blocks before it writes to them, so Release must
// follow. What was to be copied to the cache stays in the block of r, which gets its key back.
func (c *Cache) Withdraw(r *Request) {
	c.copies = slices.DeleteFunc(c.copies, func(p Copy) bool {
		if p.Request != r {
			return false
		}
		if p.Index < 0 {
			c.unsettle(p)
		}
		for _, id := range []int32{p.Dst, p.Src} {
			if c.pins[id]--; c.pins[id] == 0 {
				delete(c.pins, id)
			}
			c.pool.Free([]int32{id})
		}
		return true
	})
}

// copyOnWrite points slot at of a table to the block private and adds the pair to the pending
// copies. Both blocks are kept until the copy is taken.
func (c *Cache) copyOnWrite(r *Request, i, at int, private int32) {
	slot := &r.tables[i].ids[at]
	old := *slot
	*slot = private
	c.pool.Touch(r.tables[i].ids[at : at+1]) // the copy takes over the table's reference to old
	c.pins[old]++
	c.pins[private]++
	c.copies = append(c.copies, Copy{Src: old, Dst: private, Group: i, Index: at, Request: r})
}

// shared reports whether another table names the block, so that a write needs a copy
// (internal/README.md, decision 6). References of pending copies do not count: these are made
// before the write.
func (c *Cache) shared(id int32) bool {
	return id != pool.Null && block.Shared(c.Pool.Count(id)-c.pins[id]-c.held[id])
}

// sharedSlots counts the blocks of r that tokens from start up to slots will be
// written to and that others share.
func (c *Cache) sharedSlots(r *Request, g *group, start, slots int) int {
	n := 0
	ids := r.tables[g.id].ids
	for at := start / g.BlockSize; at < min(len(ids), ceil(slots, g.BlockSize)); at++ {
		if c.shared(ids[at]) {
			n++
		}
	}
	return n
}

// unshare replaces the blocks that sharedSlots counts. Only the first one holds tokens of r, but
// each pair also tells the worker that the slot has changed.
func (c *Cache) unshare(r *Request, i int, d *demand, private []int32) {
	g := &c.groups[i]
	ids := r.tables[i].ids
	for at := d.local / g.BlockSize; len(private) > 0; at++ {
		if c.shared(ids[at]) {
			c.copyOnWrite(r, i, at, private[0])
			private = private[1:]
		}
	}
}

package kvcache

import (
	"slices"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Copy asks the worker to copy block Src to block Dst before the step writes to any block.
type Copy struct {
	Src, Dst int32
	Group    int
	Request  *Request // nil: it has ended
	Index    int      // index of Dst in the request's table; -1: Dst is in no table
}

// A Pending lists the work that the worker must do before it runs the model.
type Pending struct {
	NewBlocks []int32 // with Config.RecordNewBlocks: new blocks of groups except Mamba, group by group
	Tails     []Tail  // with Config.HandOffTails
	Copies    []Copy
}

// Take sets dst to the work that was recorded since the last call of Take (vLLM: take_new_block_ids). It appends to
// dst.NewBlocks and replaces the other lists in dst. A recorded copy keeps a reference to each of its two blocks. If
// step is 0, Take drops these references. Otherwise EndStep drops them when that step has run.
func (c *Cache) Take(dst *Pending, step uint64) {
	for i := range c.newBlocks {
		dst.NewBlocks = append(dst.NewBlocks, c.newBlocks[i]...)
		c.newBlocks[i] = c.newBlocks[i][:0]
	}
	dst.Tails = c.takeTails(dst.Tails[:0])
	dst.Copies = c.takeCopies(dst.Copies[:0], step)
}

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
	slices.Reverse(ends) // Free begins with the last one
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

// Withdraw removes the copies of r that Take has not returned. The caller must call Release before r writes to its
// blocks. A copy whose Index is -1 keeps a Mamba state of the prompt in the cache, and its Dst has the key of this
// state. Withdraw gives this key back to the copy's Src.
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

func (c *Cache) copyOnWrite(r *Request, i, index int, dst int32) {
	slot := &r.tables[i].ids[index]
	old := *slot
	*slot = dst
	c.pool.Touch([]int32{dst}) // the copy refers to both blocks; it takes over the table's reference to old
	c.pins[old]++
	c.pins[dst]++
	c.copies = append(c.copies, Copy{Src: old, Dst: dst, Group: i, Index: index, Request: r})
}

// shared reports whether another table names the block, so that a write needs a copy (internal/README.md, "Where is it
// decided"). Pending copies, tails and deferrals also have references to blocks. These references do not count, because
// they are not entries of a table.
func (c *Cache) shared(id int32) bool {
	return id != pool.Null && block.Shared(c.Pool.Count(id)-c.pins[id]-c.held[id])
}

func (c *Cache) sharedSlots(r *Request, g *group, start, slots int) int {
	n := 0
	ids := r.tables[g.id].ids
	for index := start / g.BlockSize; index < min(len(ids), ceil(slots, g.BlockSize)); index++ {
		if c.shared(ids[index]) {
			n++
		}
	}
	return n
}

// unshare gives r its own copies of the shared blocks that sharedSlots has counted. The parameter blocks has the new
// blocks. unshare replaces each shared block in the table by the next new block, and records a copy. At most the first
// of the shared blocks has computed tokens of r. The others are copied, too, because the copies tell the worker which
// entries of the table have changed.
func (c *Cache) unshare(r *Request, i int, d *demand, blocks []int32) {
	g := &c.groups[i]
	ids := r.tables[i].ids
	for index := d.local / g.BlockSize; len(blocks) > 0; index++ {
		if c.shared(ids[index]) {
			c.copyOnWrite(r, i, index, blocks[0])
			blocks = blocks[1:]
		}
	}
}

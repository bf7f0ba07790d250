package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// need returns how many free blocks the demand takes in all groups: new ones, and those of the hit
// that are free (vllm/v1/RULES.md §6).
func (c *Cache) need(r *Request, d *demand) int {
	n := 0
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		if g.aligned() {
			n += c.needAligned(g, t, d)
		} else {
			n += c.needBlocks(g, t, d)
		}
		if r.forked {
			n += c.sharedSlots(r, g, d.local, d.slots)
		}
	}
	return n
}

func (c *Cache) needBlocks(g *group, t *table, d *demand) int {
	required := d.blocks(g)
	if d.capped && g.cap > 0 {
		required = min(required, g.cap)
	}
	if t.tracked {
		return max(required-len(t.ids), 0)
	}
	hits := d.hit(int(g.id))
	outside := g.skipped(d.computed) / g.BlockSize
	n := max(required-max(outside, len(hits)+len(t.ids)), 0)
	if d.partial(g, hits) {
		if c.Config.CopyWritten && c.Pool.InsertedNow(hits[len(hits)-1]) {
			return c.Pool.NumBlocks() + 1 // never enough: this step writes the block after it makes its copies
		}
		n++ // the copy of the block that the hit ends in
	}
	return n + c.evictable(hits[min(max(0, outside-len(t.ids)), len(hits)):])
}

// blocks returns how many blocks all tokens of the demand take in a group that is not aligned.
func (d *demand) blocks(g *group) int {
	n := ceil(d.slots, g.BlockSize)
	if g.Kind == Mamba {
		n += g.NumSpeculativeBlocks
	}
	return n
}

// evictable returns how many of the blocks are free.
func (c *Cache) evictable(ids []int32) int {
	n := 0
	for _, id := range ids {
		if id != pool.Null && c.Pool.Count(id) == 0 {
			n++
		}
	}
	return n
}

package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// need is how many free blocks the demand takes, over all groups: new blocks,
// and blocks of the hit that are free now and will not be (vllm/v1/RULES.md §6).
func (c *Cache) need(r *Request, d *demand) int {
	n := 0
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		switch {
		case g.aligned():
			n += c.needAligned(g, t, d)
		case g.Kind == Mamba:
			n += c.needBlocks(g, t, d, d.slots+g.BlockSize*g.NumSpeculativeBlocks)
		default:
			n += c.needBlocks(g, t, d, d.slots)
		}
		if r.forked {
			n += c.sharedSlots(r, g, d.local, d.slots)
		}
	}
	return n
}

func (c *Cache) needBlocks(g *group, t *table, d *demand, slots int) int {
	required := ceil(slots, g.BlockSize)
	if d.capped && g.cap > 0 {
		required = min(required, g.cap)
	}
	if t.tracked {
		return max(required-len(t.ids), 0)
	}
	hits := d.hits(int(g.id))
	outside := g.skipped(d.computed) / g.BlockSize
	n := max(required-max(outside, len(hits)+len(t.ids)), 0)
	if d.partial(g, hits) {
		if c.Config.CopyWritten && c.Pool.InsertedNow(hits[len(hits)-1]) {
			return c.Pool.NumBlocks() + 1 // too many: this step writes the block after its copies are made
		}
		n++ // the copy of the block that the hit ends in
	}
	return n + c.evictable(hits[min(max(0, outside-len(t.ids)), len(hits)):])
}

// evictable counts the blocks that are free.
func (c *Cache) evictable(ids []int32) int {
	n := 0
	for _, id := range ids {
		if id != pool.Null && c.Pool.Count(id) == 0 {
			n++
		}
	}
	return n
}

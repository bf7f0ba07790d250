package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A plan says how an allocation will change one table. All plans are made before anything changes, so that an
// allocation cannot fail after some groups have got their blocks.
type plan struct {
	adopt    bool // the table begins with the hit
	skip     int  // null blocks at its beginning, outside the window
	external int  // blocks for external tokens
	private  int  // blocks for copies
	fresh    int  // blocks at the end

	oldLen int   // length of the table before the fresh blocks
	copied int32 // the copy of the block inside which the hit ends; -1: no copy
}

func (c *Cache) plan(r *Request, d *demand) bool {
	adopt := d.adopts()
	for i := range r.tables {
		adopt = adopt && !r.tables[i].tracked
	}
	total := 0
	for i := range c.groups {
		if c.refuse != nil && c.refuse(i) {
			return false
		}
		g, p := &c.groups[i], &c.plans[i]
		*p = plan{copied: -1}
		length, partial := len(r.tables[i].ids), r.tables[i].partial >= 0
		if adopt {
			hits := d.hit(i)
			p.adopt = true
			p.skip = g.skipped(d.external) / g.BlockSize
			hits = hits[min(p.skip, len(hits)):]
			length = p.skip + len(hits)
			partial = d.partial(g, hits)
			p.external = g.externalBlocks(d, length)
			length += p.external
			total += c.evictable(hits)
		}
		if g.aligned() {
			p.planAligned(g, &r.tables[i], d, length, partial)
		} else {
			p.fresh = max(d.blocks(g)-length, 0)
			if partial {
				p.private = 1
			} else if r.forked {
				p.private = c.sharedSlots(r, g, d.local, d.slots)
			}
		}
		total += p.external + p.private + p.fresh
	}
	return total <= c.Pool.NumFree()
}

// externalBlocks returns how many blocks the external tokens need after the first length blocks of the table. It
// returns 0 if all external tokens are outside the window.
func (g *group) externalBlocks(d *demand, length int) int {
	if min(d.external-g.skipped(d.external), d.NumExternalTokens) <= 0 {
		return 0
	}
	return max(ceil(d.external, g.BlockSize)-length, 0)
}

// commit carries out the plans. All groups adopt the blocks of their hits before commit takes other blocks from the
// pool, so that no block of a hit is evicted (vllm/v1/RULES.md §6, step 7).
func (c *Cache) commit(r *Request, d *demand) {
	take := 0
	for i := range c.plans {
		p := &c.plans[i]
		if p.adopt {
			c.adopt(r, i, d)
		}
		take += p.external + p.private + p.fresh
	}
	fresh, err := c.pool.Get(c.fresh[:0], take)
	if err != nil {
		panic("kvcache: planned blocks are not there: " + err.Error())
	}
	c.fresh = fresh[:0]
	for i := range c.plans {
		n := c.plans[i].external
		r.tables[i].ids = append(r.tables[i].ids, fresh[:n]...)
		c.noteNew(i, fresh[:n])
		fresh = fresh[n:]
	}
	for i := range c.plans {
		n := c.plans[i].private + c.plans[i].fresh
		c.extend(r, i, d, fresh[:n])
		fresh = fresh[n:]
	}
}

func (c *Cache) adopt(r *Request, i int, d *demand) {
	g, t, p := &c.groups[i], &r.tables[i], &c.plans[i]
	hits := d.hit(i)
	hits = hits[min(p.skip, len(hits)):]
	c.pool.Touch(hits)
	for range p.skip {
		t.ids = append(t.ids, pool.Null)
	}
	t.ids = append(t.ids, hits...)
	t.tracked = true
	t.registered = len(t.ids)
	c.addOwner(g, t)
	if d.partial(g, hits) {
		t.partial = d.local / g.BlockSize
		t.registered = t.partial
	}
}

func (c *Cache) extend(r *Request, i int, d *demand, blocks []int32) {
	g, t, p := &c.groups[i], &r.tables[i], &c.plans[i]
	c.addOwner(g, t)
	p.oldLen = len(t.ids)
	switch {
	case g.aligned():
		c.extendAligned(r, i, d, blocks)
		return
	case t.partial >= 0:
		p.copied = blocks[0]
		c.copyOnWrite(r, i, t.partial, blocks[0])
		c.noteNew(i, blocks[:1])
		t.partial = -1
		blocks = blocks[1:]
	case p.private > 0:
		c.unshare(r, i, d, blocks[:p.private])
		blocks = blocks[p.private:]
	}
	t.ids = append(t.ids, blocks...)
	c.noteNew(i, blocks)
}

func (c *Cache) addOwner(g *group, t *table) {
	if !t.owns {
		t.owns = true
		g.owners++
	}
}

// NumCommonPrefixBlocks appends, for each group, the number of blocks at the beginning of r's table that all requests
// with blocks share. It appends 0 for groups without full attention, and for all groups without prefix caching
// (vllm/v1/RULES.md §11). As in vLLM, r counts as one of these requests from then on, even if its table is empty.
func (r *Request) NumCommonPrefixBlocks(dst []int32) []int32 {
	c := r.cache
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		n := int32(0)
		if g.Kind == Full && c.Config.EnablePrefixCaching {
			c.addOwner(g, t)
			for _, id := range t.ids {
				if c.Pool.Count(id) != int32(g.owners) {
					break
				}
				n++
			}
		}
		dst = append(dst, n)
	}
	return dst
}

// need returns how many free blocks the allocation needs in all groups. It counts new blocks, and the free ones among
// the blocks of the hit (vllm/v1/RULES.md §6).
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
	skip := g.skipped(d.computed) / g.BlockSize
	n := max(required-max(skip, len(hits)+len(t.ids)), 0)
	if d.partial(g, hits) {
		if c.Config.CopyWritten && c.Pool.InsertedNow(hits[len(hits)-1]) {
			return c.Pool.NumBlocks() + 1 // too many, so that r waits: the step makes copies before it writes the block
		}
		n++ // the copy of the block that the hit ends in
	}
	return n + c.evictable(hits[min(max(0, skip-len(t.ids)), len(hits)):])
}

// blocks returns how many blocks a group needs for all tokens of the demand. It does not apply to Mamba groups in
// align mode.
func (d *demand) blocks(g *group) int {
	n := ceil(d.slots, g.BlockSize)
	if g.Kind == Mamba {
		n += g.NumSpeculativeBlocks
	}
	return n
}

func (c *Cache) evictable(ids []int32) int {
	n := 0
	for _, id := range ids {
		if id != pool.Null && c.Pool.Count(id) == 0 {
			n++
		}
	}
	return n
}

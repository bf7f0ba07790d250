package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A plan is what an allocation will do to one table. All plans are made before anything changes, so
// an allocation cannot fail after some groups have taken their blocks.
type plan struct {
	adopt    bool // take over the hit, from block number skip on
	skip     int  // leading blocks that are outside the window: null
	external int  // blocks for external tokens
	private  int  // blocks that replace shared ones
	fresh    int  // blocks at the end

	from   int   // length of the table before the fresh blocks
	copied int32 // block given instead of one that a hit ends in; -1: none
}

// plan fills c.plans, and reports whether the blocks for them are there.
func (c *Cache) plan(r *Request, d *demand) bool {
	adopt := d.anyHit() || d.NumExternalTokens > 0
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
			hits := d.hits(i)
			p.adopt = true
			p.skip = g.skipped(d.all) / g.BlockSize
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
			slots := d.slots
			if g.Kind == Mamba {
				slots += g.BlockSize * g.NumSpeculativeBlocks
			}
			p.fresh = max(ceil(slots, g.BlockSize)-length, 0)
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

// externalBlocks is how many blocks the tokens of a connector take after
// length blocks, unless the window skips all of them.
func (g *group) externalBlocks(d *demand, length int) int {
	if min(d.all-g.skipped(d.all), d.NumExternalTokens) <= 0 {
		return 0
	}
	return max(ceil(d.all, g.BlockSize)-length, 0)
}

// commit carries the plans out. Every group adopts its hit before any block is
// taken, so that no group evicts another's hit (vllm/v1/RULES.md §6, step 7).
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

// adopt makes the hit the beginning of the table.
func (c *Cache) adopt(r *Request, i int, d *demand) {
	g, t, p := &c.groups[i], &r.tables[i], &c.plans[i]
	hits := d.hits(i)
	hits = hits[min(p.skip, len(hits)):]
	c.pool.Touch(hits)
	for range p.skip {
		t.ids = append(t.ids, pool.Null)
	}
	t.ids = append(t.ids, hits...)
	t.tracked = true
	t.registered = len(t.ids)
	c.own(g, t)
	if d.partial(g, hits) {
		t.partial = d.local / g.BlockSize
		t.registered = t.partial
	}
}

// extend adds the blocks of one group's plan: first those that replace shared
// ones, then those at the end.
func (c *Cache) extend(r *Request, i int, d *demand, blocks []int32) {
	g, t, p := &c.groups[i], &r.tables[i], &c.plans[i]
	c.own(g, t)
	p.from = len(t.ids)
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

// own counts the table's owner, for the common prefix.
func (c *Cache) own(g *group, t *table) {
	if !t.owns {
		t.owns = true
		g.owners++
	}
}

// NumCommonPrefixBlocks appends, for each group, how many blocks at the beginning of r's table
// all requests with blocks share; 0 for groups without full attention
// (vllm/v1/RULES.md §11). As in vLLM, asking makes r an owner of a table.
func (r *Request) NumCommonPrefixBlocks(dst []int32) []int32 {
	c := r.cache
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		n := int32(0)
		if g.Kind == Full && c.Config.EnablePrefixCaching {
			c.own(g, t)
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

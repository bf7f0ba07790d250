package kvcache

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// Mamba layers have a state instead of keys and values. In align mode, the table of a request ends with the block of
// the running state and the speculative blocks. Entry i of the table before the running state is either null or the
// block with the state after (i+1)×BlockSize tokens. When a step begins a new block, the worker copies the state from
// the block before. The block before is therefore kept for one more step (vllm/v1/RULES.md §13, and vLLM's
// MambaManager at the commit named there).

// needAligned returns how many blocks an allocation needs in a Mamba group in align mode. It counts at most one block
// for a new running state. If the hit ends inside a block, it also counts the copy of the state; in a request's first
// allocation, also the speculative blocks.
func (c *Cache) needAligned(g *group, t *table, d *demand) int {
	hits := d.hit(int(g.id))
	if n := len(hits); n > 0 && c.justStored(g, hits[n-1]) {
		return c.Pool.NumBlocks() + 1 // never enough: this step computes the state
	}
	partial := d.partial(g, hits) || t.partial >= 0
	n := ceil(d.main, g.BlockSize) + g.NumSpeculativeBlocks - len(hits) - len(t.ids)
	extra := 0
	if partial {
		extra = 1
		n = max(n, 0) + 1
	}
	if n > 0 {
		n = 1 + extra
		if !t.allocated {
			n += g.NumSpeculativeBlocks
		}
	}
	if c.Config.Exact {
		n = max(n, 0) // drafts can have got more blocks than the tokens need
	}
	return n + c.evictable(hits)
}

func (c *Cache) justStored(g *group, id int32) bool {
	key, _, ok := c.Pool.Primary(id)
	return ok && slices.Contains(g.justStored, key)
}

// planAligned plans the work of extendAligned for a table that has length blocks when extendAligned is called.
func (p *plan) planAligned(g *group, t *table, d *demand, length int, partial bool) {
	required := ceil(d.main, g.BlockSize) + g.NumSpeculativeBlocks
	if required <= length && !partial {
		return
	}
	running := required - g.NumSpeculativeBlocks - 1 // slot of the running state
	end := max(length, running)
	if t.allocated {
		end += reused(g, length, running)
	}
	p.fresh = max(required-end, 0)
	if partial {
		p.private = 1
	}
}

// reused returns how many of the speculative blocks are before the new running state and can be used again after it.
func reused(g *group, length, running int) int {
	return min(g.NumSpeculativeBlocks, max(0, running-(length-g.NumSpeculativeBlocks)))
}

func (c *Cache) extendAligned(r *Request, i int, d *demand, blocks []int32) {
	g, t, p := &c.groups[i], &r.tables[i], &c.plans[i]
	length := len(t.ids)
	first := !t.allocated
	t.allocated = true
	if len(blocks) == 0 && ceil(d.main, g.BlockSize)+g.NumSpeculativeBlocks <= length {
		return
	}
	if !first {
		t.lastState = length - 1 - g.NumSpeculativeBlocks
	} else if length > 0 {
		t.lastState = length - 1 // the state of the hit
	}
	running := ceil(d.main, g.BlockSize) - 1
	for len(t.ids) < running {
		t.ids = append(t.ids, pool.Null)
	}
	if !first {
		for k := range reused(g, length, running) {
			at := length - g.NumSpeculativeBlocks + k
			t.ids = append(t.ids, t.ids[at])
			t.ids[at] = pool.Null
		}
	}
	if p.private > 0 {
		c.settlePartial(r, i, blocks[0], first)
		blocks = blocks[1:]
	}
	t.ids = append(t.ids, blocks...)
}

// settlePartial copies the state in entry t.partial of the table into the block private. In a first allocation this is
// the state of the hit, and the request gets the copy. In a later allocation it is the request's own state at the end
// of its prompt. Then the copy stays in the cache, and the request keeps its block, because the worker's block table
// cannot change.
func (c *Cache) settlePartial(r *Request, i int, private int32, first bool) {
	g, t := &c.groups[i], &r.tables[i]
	if first {
		c.plans[i].copied = private
		c.copyOnWrite(r, i, t.partial, private)
	} else {
		own := t.ids[t.partial]
		c.pool.Move(own, private)
		c.pins[own]++
		c.pins[private]++
		c.pool.Touch(t.ids[t.partial : t.partial+1])
		c.copies = append(c.copies, Copy{Src: own, Dst: private, Group: i, Index: -1, Request: r})
		if c.Config.HandOffTails {
			c.tails = append(c.tails, Tail{Request: r, Group: i, Block: private, NumTokens: t.tail})
		}
		if key, _, ok := c.Pool.Primary(private); ok {
			g.justStored = append(g.justStored, key)
		}
	}
	t.partial = -1
}

func (c *Cache) unsettle(p Copy) {
	if key, _, ok := c.Pool.Primary(p.Dst); ok {
		g := &c.groups[p.Group]
		g.justStored = slices.DeleteFunc(g.justStored, func(k pool.Key) bool { return k == key })
	}
	c.pool.Evict(p.Src) // it can have got the key of a later state
	c.pool.Move(p.Dst, p.Src)
}

// leaveState frees the block with the state before the running state, unless a step in flight still copies it. settled
// is the number of computed tokens without those of steps in flight.
func (c *Cache) leaveState(g *group, t *table, settled int) {
	if t.lastState < 0 || t.lastState >= ceil(settled, g.BlockSize)-1 {
		return
	}
	if id := t.ids[t.lastState]; id != pool.Null {
		c.pool.Free(t.ids[t.lastState : t.lastState+1])
		t.ids[t.lastState] = pool.Null
	}
}

// registerStates adds to justStored the keys of the states that r has just stored, in the blocks from index before on.
// A later step will overwrite the running state. So if this step ends inside a block, at the last hash of the prompt,
// registerStates gives the running state a key, too.
func (c *Cache) registerStates(r *Request, i, before, tokens, end int) {
	g, t := &c.groups[i], &r.tables[i]
	after := t.registered
	if g.Align && tokens == end {
		if key, ok := c.registerPromptState(r, i, tokens); ok {
			g.justStored = append(g.justStored, key)
		}
	}
	for _, id := range t.ids[min(before, after):after] {
		if key, _, ok := c.Pool.Primary(id); ok {
			g.justStored = append(g.justStored, key)
		}
	}
}

// registerPromptState gives the running state a key if it is the state at the last hash of the prompt, and this hash
// ends inside a block.
func (c *Cache) registerPromptState(r *Request, i, tokens int) (key pool.Key, ok bool) {
	g, t := &c.groups[i], &r.tables[i]
	unit := c.Config.HashBlockSize
	if g.BlockSize == unit || tokens%g.BlockSize == 0 || tokens != floorTo(r.NumPromptTokens, unit) {
		return key, false
	}
	at := tokens / g.BlockSize
	if at >= len(t.ids) {
		return key, false
	}
	if key, ok = c.pool.RegisterPart(&r.content, t.ids[at], tokens, g.id); ok {
		t.partial = at
		t.registered = at
		t.tail = tokens
	}
	return key, ok
}

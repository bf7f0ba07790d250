package kvcache

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// Mamba layers have a state instead of keys and values. In align mode, the table of a request ends with the block of
// the running state, followed by the speculative blocks. Every entry i before the running state is null, or is the
// block with the state after (i+1)×BlockSize tokens.
//
// When a step begins a new block, the worker copies the running state from the previous block to the new one. The
// request therefore keeps the previous block for one more step (vllm/v1/RULES.md §13, and vLLM's MambaManager at the
// commit named there).

// needAligned returns how many free blocks an allocation needs in a Mamba group in align mode. It counts at most one
// block for a new running state. If this is the request's first allocation, needAligned also counts the speculative
// blocks. If a state must be copied because the hit or the prompt ends inside a block, it also counts a block for the
// copy. It also counts the free blocks of the hit. If this step computes the state of the hit, the result is more than
// the pool has. Without Config.Exact the result can be negative.
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

// planAligned plans the work of extendAligned. The parameter length is the number of blocks that the table will have
// when extendAligned is called.
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

// reused returns how many of the speculative blocks are in table entries before the entry of the new running state.
// extendAligned moves these blocks to the end of the table.
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
			index := length - g.NumSpeculativeBlocks + k
			t.ids = append(t.ids, t.ids[index])
			t.ids[index] = pool.Null
		}
	}
	if p.private > 0 {
		c.settlePartial(r, i, blocks[0], first)
		blocks = blocks[1:]
	}
	t.ids = append(t.ids, blocks...)
}

// settlePartial records a copy of the state in entry t.partial of the table to block dst. So the state stays in the
// cache when the request computes more tokens.
//
// In a first allocation, the state is that of the hit. dst replaces the hit's block in the table, and the request
// overwrites the state in dst.
//
// In a later allocation, the state is the one to which registerPromptState has given a key. dst gets the keys of the
// request's block, so a lookup finds the state in dst. The request's block stays in the table, because the worker's
// block table cannot change.
func (c *Cache) settlePartial(r *Request, i int, dst int32, first bool) {
	g, t := &c.groups[i], &r.tables[i]
	if first {
		c.plans[i].copied = dst
		c.copyOnWrite(r, i, t.partial, dst)
	} else {
		src := t.ids[t.partial]
		c.pool.Move(src, dst)
		c.pins[src]++
		c.pins[dst]++
		c.pool.Touch(t.ids[t.partial : t.partial+1])
		c.copies = append(c.copies, Copy{Src: src, Dst: dst, Group: i, Index: -1, Request: r})
		if c.Config.HandOffTails {
			c.tails = append(c.tails, Tail{Request: r, Group: i, Block: dst, NumTokens: t.tail})
		}
		if key, _, ok := c.Pool.Primary(dst); ok {
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

// leaveState frees the block from which the running state was copied to its present block, unless a step in flight
// still reads it. settled is the number of computed tokens without those of steps in flight.
func (c *Cache) leaveState(g *group, t *table, settled int) {
	if t.lastState < 0 || t.lastState >= ceil(settled, g.BlockSize)-1 {
		return
	}
	if id := t.ids[t.lastState]; id != pool.Null {
		c.pool.Free(t.ids[t.lastState : t.lastState+1])
		t.ids[t.lastState] = pool.Null
	}
}

// registerStates adds to justStored the keys of the states that r has just stored. These states are in the registered
// blocks after the first oldRegistered blocks.
//
// In align mode, registerStates also calls registerPromptState to give a key to the running state, and adds this key.
// numTokens is the number of registered tokens, and the key would be the key of these tokens. But the running state is
// the state after the tokens that are computed when the step has run, and end is the number of these tokens. So
// registerStates does this only if numTokens is equal to end.
func (c *Cache) registerStates(r *Request, i, oldRegistered, numTokens, end int) {
	g, t := &c.groups[i], &r.tables[i]
	registered := t.registered
	if g.Align && numTokens == end {
		if key, ok := c.registerPromptState(r, i, numTokens); ok {
			g.justStored = append(g.justStored, key)
		}
	}
	for _, id := range t.ids[min(oldRegistered, registered):registered] {
		if key, _, ok := c.Pool.Primary(id); ok {
			g.justStored = append(g.justStored, key)
		}
	}
}

// registerPromptState gives a key to the running state, which is the state after the given number of tokens. It does
// this only if two conditions are met:
//
//   - The number of tokens is the last multiple of Config.HashBlockSize in the prompt.
//   - The number of tokens is not a multiple of the group's BlockSize, so the last block is partly filled.
//
// The request will overwrite the state. So the next allocation copies the state to another block (see settlePartial).
func (c *Cache) registerPromptState(r *Request, i, tokens int) (key pool.Key, ok bool) {
	g, t := &c.groups[i], &r.tables[i]
	unit := c.Config.HashBlockSize
	if g.BlockSize == unit || tokens%g.BlockSize == 0 || tokens != floorTo(r.NumPromptTokens, unit) {
		return key, false
	}
	index := tokens / g.BlockSize
	if index >= len(t.ids) {
		return key, false
	}
	if key, ok = c.pool.RegisterPart(&r.content, t.ids[index], tokens, g.id); ok {
		t.partial = index
		t.registered = index
		t.tail = tokens
	}
	return key, ok
}

package kvcache

import (
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A View reads the state of a Cache.
type View struct{ c *Cache }

// Pool reads the state of the pool.
func (v View) Pool() pool.View { return v.c.pool.View }

// CachedPrefix is how many of the blocks of group 0 with these hashes are in the cache, from the first one on.
func (v View) CachedPrefix(blocks []blockhash.Hash) int {
	for i := range blocks {
		if _, cached := v.c.pool.Lookup(&blocks[i], 0); !cached {
			return i
		}
	}
	return len(blocks)
}

// Config is the configuration with its defaults filled in.
func (v View) Config() *Config { return &v.c.config }

// TakeEvents moves the recorded events to dst.
func (v View) TakeEvents(dst *pool.Events) { v.c.pool.TakeEvents(dst) }

// TakeStats returns the counts since the last call.
func (v View) TakeStats() Stats {
	s := v.c.stats
	v.c.stats = Stats{}
	return s
}

// PartialBlockHits reports whether hits can end inside a block, at any hash.
func (v View) PartialBlockHits() bool { return v.c.finest }

// Recycles reports whether some group gives blocks back before a request ends.
func (v View) Recycles() bool { return v.c.recycles }

// NumDeferred is how many blocks wait for a step to end.
func (v View) NumDeferred() int {
	n := 0
	for _, d := range v.c.deferred {
		n += len(d.ids)
	}
	return n
}

// NumCommonPrefixBlocks appends, for each group, how many blocks at the beginning of r's table
// all requests with blocks share; 0 for groups without full attention
// (vllm/v1/RULES.md §11). As in vLLM, asking makes r an owner of a table.
func (v View) NumCommonPrefixBlocks(dst []int32, r *Request) []int32 {
	c := v.c
	for i := range c.groups {
		g, t := &c.groups[i], &r.tables[i]
		n := int32(0)
		if g.Kind == Full && c.config.EnablePrefixCaching {
			c.own(g, t)
			for _, id := range t.ids {
				if c.pool.View.Count(id) != int32(g.owners) {
					break
				}
				n++
			}
		}
		dst = append(dst, n)
	}
	return dst
}

// NewBlocks returns the blocks of a group that the last allocation of r gave it: the
// copy of a block that its hit ended in, and those at the end of the table.
// They are appended to dst.
func (v View) NewBlocks(dst []int32, r *Request, group int) []int32 {
	p := &v.c.plans[group]
	if p.copied >= 0 {
		dst = append(dst, p.copied)
	}
	return append(dst, r.tables[group].ids[p.from:]...)
}

// PeakBlocks is the most blocks that a request of n tokens holds at a time when it is alone, with
// the given number of steps in flight. In a cache with fewer it may never run.
func (v View) PeakBlocks(tokens, steps int) int {
	c := v.c
	n := 0
	for i := range c.groups {
		g := &c.groups[i]
		blocks := ceil(tokens, g.BlockSize)
		if g.cap > 0 {
			blocks = min(blocks, g.cap)
		}
		if g.aligned() {
			if steps == 1 {
				blocks = min(blocks, 2) // the running state and the one before
			} // else states of steps in flight can stay until the request ends (RULES.md §13)
		}
		if c.finest && g.fine() {
			blocks++ // the copy of a block that a hit ends in
		}
		n += blocks + g.NumSpeculativeBlocks
	}
	return n
}

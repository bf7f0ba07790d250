package kvcache

import "slices"

// A Tail is a block with the state of a Mamba group after the last hash of a prompt, inside a
// block of the group. It is in no table, because the request has overwritten its own state. A
// connector can send it, so that elsewhere a prompt can be hit up to there (vLLM's
// partial_tail_offloads; vllm/v1/RULES.md §19).
type Tail struct {
	Request   *Request
	Group     int
	Block     int32
	NumTokens int // before the state
}

// forgetTails removes the tails of r that were not taken, and returns the blocks of the others for
// the caller to free.
func (c *Cache) forgetTails(r *Request) []int32 {
	if len(c.tails) > 0 {
		c.tails = slices.DeleteFunc(c.tails, func(t Tail) bool { return t.Request == r })
	}
	kept := r.kept
	r.kept = r.kept[:0]
	for _, id := range kept {
		c.release(id)
	}
	return kept
}

func (c *Cache) release(id int32) {
	if c.held[id]--; c.held[id] == 0 {
		delete(c.held, id)
	}
}

// noteNew records blocks of group i that may have to be zeroed.
func (c *Cache) noteNew(i int, blocks []int32) {
	if c.Config.RecordNewBlocks && c.groups[i].Kind != Mamba {
		c.newBlocks[i] = append(c.newBlocks[i], blocks...)
	}
}

// takeTails appends the tails to dst, group by group. Their blocks are kept until those of their
// requests are freed.
func (c *Cache) takeTails(dst []Tail) []Tail {
	for g := range c.groups {
		for i := range c.tails {
			t := c.tails[i]
			if t.Group != g {
				continue
			}
			r := t.Request
			r.kept = append(r.kept, t.Block)
			c.pool.Touch(r.kept[len(r.kept)-1:])
			c.held[t.Block]++
			dst = append(dst, t)
		}
	}
	clear(c.tails)
	c.tails = c.tails[:0]
	return dst
}

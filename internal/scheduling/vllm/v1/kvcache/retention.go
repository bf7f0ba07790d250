package kvcache

import (
	"cmp"
	"slices"
)

// retained returns a mask of the blocks [from, to) that get a key, or nil if all of them do. In groups of sliding
// windows and states, hits need only the last blocks before a boundary, and other blocks get no key (vllm/v1/RULES.md
// §9).
func (c *Cache) retained(r *Request, g *group, from, to int) []bool {
	switch g.Kind {
	case SlidingWindow:
		return c.retainedWindow(r, g, from, to)
	case Mamba:
		return c.retainedStates(r, g, from, to)
	}
	return nil
}

// retainedWindow returns the mask for a sliding window: the last blocks of each segment and the last blocks before each
// boundary, as many as a window needs. A segment has RetentionInterval tokens. With RetainAll it has SchedulerBlockSize
// tokens, and boundaries do not matter. A hit with EAGLE needs one block after its end, so with EAGLE the mask is moved
// by one block.
func (c *Cache) retainedWindow(r *Request, g *group, from, to int) []bool {
	need, shift := windowBlocks(&g.Group, g.eagle), eagleBlock(g.eagle)
	segment := c.Config.RetentionInterval
	if segment == RetainAll {
		segment = c.Config.SchedulerBlockSize
	}
	per := segment / g.BlockSize
	if segment > 0 && need >= per {
		return nil
	}
	mask := c.clearMask(to - from)
	if segment > 0 {
		for i := max(from, shift); i < to; i++ {
			mask[i-from] = (i-shift)%per >= per-need
		}
	}
	if c.Config.RetentionInterval != RetainAll {
		for _, boundary := range r.boundaries() {
			end := floorTo(boundary, c.Config.SchedulerBlockSize)/g.BlockSize + shift
			for i := max(from, end-need); i < min(to, end); i++ {
				mask[i-from] = true
			}
		}
	}
	return mask
}

// retainedStates returns the mask for a Mamba group: the states at the ends of segments and before boundaries.
func (c *Cache) retainedStates(r *Request, g *group, from, to int) []bool {
	segment := c.Config.RetentionInterval
	if segment == RetainAll {
		return nil
	}
	per := segment / g.BlockSize
	if segment > 0 && per <= 1 {
		return nil
	}
	mask := c.clearMask(to - from)
	for i := from; i < to; i++ {
		mask[i-from] = segment > 0 && (i+1)%per == 0
	}
	for _, boundary := range r.boundaries() {
		i := floorTo(boundary, c.Config.SchedulerBlockSize)/g.BlockSize - 1
		if from <= i && i < to {
			mask[i-from] = true
		}
	}
	return mask
}

// boundaries returns the lengths of prefixes that later lookups are likely to find. The first is the prompt without its
// last token. The second is r.Junction if it is set: at the lookup of r, only a part of the groups had this prefix in
// the cache.
func (r *Request) boundaries() [2]int {
	replay := r.NumPromptTokens - 1
	return [2]int{replay, cmp.Or(r.Junction, replay)}
}

func (c *Cache) clearMask(n int) []bool {
	c.mask = slices.Grow(c.mask[:0], n)[:n]
	clear(c.mask)
	return c.mask
}

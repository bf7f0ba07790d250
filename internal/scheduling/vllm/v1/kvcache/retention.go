package kvcache

import (
	"cmp"
	"slices"
)

// retained returns a mask of the blocks [start, end) that get a key, or nil if all of them get one. In groups of
// sliding windows and of Mamba states, a hit needs only the last blocks before its end. So only the blocks before
// likely ends of hits get a key (vllm/v1/RULES.md §9).
func (c *Cache) retained(r *Request, g *group, start, end int) []bool {
	switch g.Kind {
	case SlidingWindow:
		return c.retainedWindow(r, g, start, end)
	case Mamba:
		return c.retainedStates(r, g, start, end)
	}
	return nil
}

// retainedWindow returns the mask for a sliding window. The mask selects as many blocks as a window needs before the
// end of each segment and before each boundary. A segment has RetentionInterval tokens; if this is 0, there are no
// segments. With RetainAll, a segment has SchedulerBlockSize tokens, so that hits can end at any segment, and
// boundaries have no effect. With EAGLE, a hit also needs the block after its end, so the mask selects this block, too.
func (c *Cache) retainedWindow(r *Request, g *group, start, end int) []bool {
	need, shift := windowBlocks(&g.Group, g.eagle), eagleBlock(g.eagle)
	segment := c.Config.RetentionInterval
	if segment == RetainAll {
		segment = c.Config.SchedulerBlockSize
	}
	per := segment / g.BlockSize
	if segment > 0 && need >= per {
		return nil
	}
	mask := c.clearMask(end - start)
	if segment > 0 {
		for i := max(start, shift); i < end; i++ {
			mask[i-start] = (i-shift)%per >= per-need
		}
	}
	if c.Config.RetentionInterval != RetainAll {
		for _, boundary := range r.boundaries() {
			hitEnd := floorTo(boundary, c.Config.SchedulerBlockSize)/g.BlockSize + shift
			for i := max(start, hitEnd-need); i < min(end, hitEnd); i++ {
				mask[i-start] = true
			}
		}
	}
	return mask
}

// retainedStates returns the mask for a Mamba group: the states at the ends of segments and before boundaries. With
// Config.Exact and in align mode, the end of the prompt is a boundary, too (vllm/v1/RULES.md §17).
func (c *Cache) retainedStates(r *Request, g *group, start, end int) []bool {
	segment := c.Config.RetentionInterval
	if segment == RetainAll {
		return nil
	}
	per := segment / g.BlockSize
	if segment > 0 && per <= 1 {
		return nil
	}
	mask := c.clearMask(end - start)
	for i := start; i < end; i++ {
		mask[i-start] = segment > 0 && (i+1)%per == 0
	}
	keep := func(boundary int) {
		i := floorTo(boundary, c.Config.SchedulerBlockSize)/g.BlockSize - 1
		if start <= i && i < end {
			mask[i-start] = true
		}
	}
	for _, boundary := range r.boundaries() {
		keep(boundary)
	}
	if c.Config.Exact && g.Align {
		keep(r.NumPromptTokens)
	}
	return mask
}

// boundaries returns the lengths of two prefixes that later lookups are likely to find. The first is the prompt without
// its last token. The second is r.Junction: when r was looked up, some groups had this prefix in the cache, but not
// all. If r.Junction is not set, the second is equal to the first.
func (r *Request) boundaries() [2]int {
	replay := r.NumPromptTokens - 1
	return [2]int{replay, cmp.Or(r.Junction, replay)}
}

func (c *Cache) clearMask(n int) []bool {
	c.mask = slices.Grow(c.mask[:0], n)[:n]
	clear(c.mask)
	return c.mask
}

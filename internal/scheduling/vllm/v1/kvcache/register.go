package kvcache

import "fmt"

// register gives keys to the full blocks of the first numTokens tokens of a request, except blocks that their group
// does not retain. With several groups, unless hits may end inside a block, it rounds numTokens down to a length that a
// hit can have. An EAGLE group then registers one block more, because its hits need the block after their end
// (vllm/v1/RULES.md §10). Depending on the group, register also gives keys to parts of blocks and to Mamba states.
//
// end is the number of tokens that are computed when the step has run. If the step computes tokens that are not sampled
// yet, end is larger than numTokens.
func (c *Cache) register(r *Request, numTokens, end int) {
	whole := numTokens
	if len(c.groups) > 1 && !c.partialHits {
		whole = floorTo(numTokens, c.Config.SchedulerBlockSize)
	}
	for i := range c.groups {
		n := whole
		if c.groups[i].eagle && whole > 0 {
			n = min(numTokens, whole+c.groups[i].BlockSize)
		}
		c.registerGroup(r, i, n, end)
	}
}

func (c *Cache) registerGroup(r *Request, i, numTokens, end int) {
	g, t := &c.groups[i], &r.tables[i]
	oldRegistered := t.registered
	if numTokens >= (t.registered+1)*g.BlockSize {
		full := numTokens / g.BlockSize
		mask := c.retained(r, g, t.registered, full)
		c.pool.Register(&r.content, t.ids, t.registered, full, g.BlockSize, g.id, mask)
		t.registered = full
		t.tracked = true
	}
	if g.Kind == Mamba {
		c.registerStates(r, i, oldRegistered, numTokens, end)
	} else if g.Kind == Full && g.BlockSize != c.Config.HashBlockSize {
		c.registerTail(r, i, numTokens)
	}
}

// registerTail gives a partial key to the block that contains the last multiple of HashBlockSize in the prompt. The key
// identifies the tokens up to this position. registerTail does nothing if the position is the end of a block, or if it
// is not computed yet.
func (c *Cache) registerTail(r *Request, i, tokens int) {
	g, t := &c.groups[i], &r.tables[i]
	end := floorTo(r.NumPromptTokens, c.Config.HashBlockSize)
	if end == 0 || end > tokens || end%g.BlockSize == 0 || end/g.BlockSize >= len(t.ids) {
		return
	}
	c.pool.RegisterPart(&r.content, t.ids[end/g.BlockSize], end, g.id)
}

// Store registers the blocks of the first tokens of r, which Allocate did not register because of DelayCacheBlocks.
func (c *Cache) Store(r *Request, tokens int) error {
	if !c.Config.EnablePrefixCaching {
		return nil
	}
	if tokens < 0 || tokens > r.NumTokens() {
		return fmt.Errorf("%w: %d tokens to store of %d", ErrRequest, tokens, r.NumTokens())
	}
	for i := range r.tables {
		if numBlocks := len(r.tables[i].ids); numBlocks < tokens/c.groups[i].BlockSize {
			return fmt.Errorf("%w: %d tokens to store in %d blocks of %d", ErrRequest, tokens, numBlocks, c.groups[i].BlockSize)
		}
	}
	c.register(r, tokens, r.NumComputedTokens)
	return nil
}

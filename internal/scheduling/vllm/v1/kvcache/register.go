package kvcache

import "fmt"

// register gives the blocks of the first tokens tokens their keys. In hybrid
// mode that is rounded down to where a hit can end, plus one block for EAGLE
// groups, which look one block further (vllm/v1/RULES.md §10). end is the token up to
// which the request is computed, which is more than tokens if steps in flight sample.
func (c *Cache) register(r *Request, tokens, end int) {
	if len(c.groups) == 1 {
		c.registerGroup(r, 0, tokens, end)
		return
	}
	whole := c.hittable(tokens)
	for i := range c.groups {
		n := whole
		if c.groups[i].eagle && whole > 0 {
			n = min(tokens, whole+c.groups[i].BlockSize)
		}
		c.registerGroup(r, i, n, end)
	}
}

// hittable is the longest prefix that a hit can cover.
func (c *Cache) hittable(tokens int) int {
	if c.finest {
		return tokens
	}
	return floorTo(tokens, c.Config.SchedulerBlockSize)
}

func (c *Cache) registerGroup(r *Request, i, tokens, end int) {
	g, t := &c.groups[i], &r.tables[i]
	before := t.registered
	if tokens >= (t.registered+1)*g.BlockSize {
		full := tokens / g.BlockSize
		mask := c.retained(r, g, t.registered, full)
		c.pool.Register(&r.content, t.ids, t.registered, full, g.BlockSize, g.id, mask)
		t.registered = full
		t.tracked = true
	}
	if g.Kind == Mamba {
		c.registerStates(r, i, before, tokens, end)
	} else if g.Kind == Full && g.BlockSize != c.Config.HashBlockSize {
		c.registerTail(r, i, tokens)
	}
}

// registerTail makes the block in which the prompt's last hash ends findable
// there, even if no lookup is that fine (vllm/v1/RULES.md §10).
func (c *Cache) registerTail(r *Request, i, tokens int) {
	g, t := &c.groups[i], &r.tables[i]
	end := floorTo(r.NumPromptTokens, c.Config.HashBlockSize)
	if end == 0 || end > tokens || end%g.BlockSize == 0 || end/g.BlockSize >= len(t.ids) {
		return
	}
	c.pool.RegisterPart(&r.content, t.ids[end/g.BlockSize], end, g.id)
}

// Store registers the blocks of the first tokens tokens, after an allocation
// with DelayCacheBlocks.
func (c *Cache) Store(r *Request, tokens int) error {
	if !c.Config.EnablePrefixCaching {
		return nil
	}
	if tokens < 0 || tokens > r.NumTokens() {
		return fmt.Errorf("%w: %d tokens to store of %d", ErrRequest, tokens, r.NumTokens())
	}
	for i := range r.tables {
		if has := len(r.tables[i].ids); has < tokens/c.groups[i].BlockSize {
			return fmt.Errorf("%w: %d tokens to store in %d blocks of %d", ErrRequest, tokens, has, c.groups[i].BlockSize)
		}
	}
	c.register(r, tokens, r.NumComputedTokens)
	return nil
}

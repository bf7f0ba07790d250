package kvcache

import (
	"slices"

	"llmmemory/internal/block"
	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// Check returns an error if the cache is inconsistent. The count of each block must be the number of references to it.
// A block may occur only once in a table. All tables that name a block must belong to the same group. The key of a
// block must be the key of the tokens that the block contains according to the tables.
func (c *Cache) Check() error {
	if err := c.Pool.Check(); err != nil {
		return err
	}
	counts := make([]int32, c.Pool.NumBlocks())
	for id := range counts {
		counts[id] = c.Pool.Count(int32(id))
	}
	if err := block.Conserved(counts, c.Pool.NumFree()+1, c.references); err != nil {
		return err
	}
	groupOf := make([]int, c.Pool.NumBlocks())
	owners := make([]int, len(c.groups))
	for _, r := range c.live {
		if err := c.checkRequest(r); err != nil {
			return err
		}
		for i := range r.tables {
			if r.tables[i].owns {
				owners[i]++
			}
			if err := c.checkTable(r, i, groupOf); err != nil {
				return err
			}
		}
	}
	for i := range c.groups {
		if c.groups[i].owners != owners[i] {
			return invariants.Broken("group %d has %d owners, recorded are %d", i, owners[i], c.groups[i].owners)
		}
	}
	return nil
}

func (c *Cache) references(yield func(int32) bool) {
	for _, r := range c.live {
		for i := range r.tables {
			for _, id := range r.tables[i].ids {
				if id != pool.Null && !yield(id) {
					return
				}
			}
		}
	}
	for _, held := range []map[int32]int32{c.pins, c.held} {
		for id, n := range held {
			for range n {
				if !yield(id) {
					return
				}
			}
		}
	}
}

func (c *Cache) checkRequest(r *Request) error {
	if n := len(r.content.Hashes); c.Config.Hash != nil {
		if n != r.NumTokens()/c.Config.HashBlockSize {
			return invariants.Broken("a request of %d tokens has %d hashes of %d", r.NumTokens(), n, c.Config.HashBlockSize)
		}
		rehashed := r.content
		rehashed.Hashes = nil
		rehashed.Extend(c.Config.Hash, c.Config.HashBlockSize)
		if !slices.Equal(rehashed.Hashes, r.content.Hashes) && len(r.content.Extras.Items) == 0 {
			return invariants.Broken("the hashes are not those of the tokens")
		}
	}
	if r.NumComputedTokens < 0 || r.NumPromptTokens < 1 || r.NumPromptTokens > r.NumTokens() {
		return invariants.Broken("a request has %d tokens, %d computed and %d of the prompt", r.NumTokens(), r.NumComputedTokens, r.NumPromptTokens)
	}
	return nil
}

func (c *Cache) checkTable(r *Request, i int, groupOf []int) error {
	g, t := &c.groups[i], &r.tables[i]
	if t.registered > len(t.ids) {
		return invariants.Broken("%d blocks of %d are registered", t.registered, len(t.ids))
	}
	if len(t.ids) > 0 && !t.owns {
		return invariants.Broken("a table of %d blocks has no owner", len(t.ids))
	}
	seen := make(map[int32]bool, len(t.ids))
	for slot, id := range t.ids {
		if id == pool.Null {
			continue
		}
		if seen[id] || groupOf[id] != 0 && groupOf[id] != i+1 {
			return invariants.Broken("block %d is in slot %d of group %d, and somewhere else", id, slot, i)
		}
		seen[id] = true
		groupOf[id] = i + 1
		if err := c.checkKey(r, g, slot, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) checkKey(r *Request, g *group, slot int, id int32) error {
	key, tokens, ok := c.Pool.Primary(id)
	if !ok {
		return nil
	}
	if key.Group != g.id || tokens <= slot*g.BlockSize || tokens > (slot+1)*g.BlockSize {
		return invariants.Broken("block %d in slot %d of group %d has a key of group %d for %d tokens", id, slot, g.id, key.Group, tokens)
	}
	if n := tokens / c.Config.HashBlockSize; n <= len(r.content.Hashes) && r.content.Hashes[n-1] != key.Hash {
		return invariants.Broken("block %d in slot %d of group %d has the key of other tokens", id, slot, g.id)
	}
	return nil
}

package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A Hit is the prefix of a request that the cache holds. It does not protect the blocks: if a key
// was removed since, it is stale (vllm/v1/RULES.md §2.5).
type Hit struct {
	NumTokens int
	Blocks    [][]int32 // by group; null blocks for tokens outside windows

	request *Request
	version uint64
}

// Truncate shortens a hit to tokens, a multiple of every block. Of a Mamba group
// fewer blocks can be left.
func (h *Hit) Truncate(c *Cache, tokens int) {
	h.NumTokens = tokens
	for i := range h.Blocks {
		h.Blocks[i] = h.Blocks[i][:min(tokens/c.groups[i].BlockSize, len(h.Blocks[i]))]
	}
}

// Clear makes h the hit of no tokens.
func (h *Hit) Clear() {
	h.NumTokens = 0
	for i := range h.Blocks {
		h.Blocks[i] = h.Blocks[i][:0]
	}
}

// hitState is the result of a set so far; it is kept at the set's first group.
type hitState struct {
	known  bool
	tokens int
}

// Lookup finds the longest cached prefix of r and leaves out the last token,
// whose logits must be computed (vllm/v1/RULES.md §5). It sets the request's junction.
// The arrays of hit are used again.
func (c *Cache) Lookup(r *Request, hit *Hit) {
	hit.request, hit.version, hit.NumTokens = r, c.Pool.Version(), 0
	for len(hit.Blocks) < len(c.groups) {
		hit.Blocks = append(hit.Blocks, nil)
	}
	for i := range hit.Blocks {
		hit.Blocks[i] = hit.Blocks[i][:0]
	}
	r.Junction = 0
	if !c.Config.EnablePrefixCaching || r.noRead {
		return
	}
	limit := r.NumTokens() - 1
	if len(c.groups) == 1 {
		hit.NumTokens = c.lookupSet(&c.sets[0], r, hit, limit, c.sets[0].eagle)
	} else {
		longest := c.reconcile(r, hit, limit)
		if longest > hit.NumTokens {
			r.Junction = longest
		}
	}
	if r.report && hit.NumTokens > 0 {
		for i := range c.groups {
			c.pool.ReportHit(&r.content, len(hit.Blocks[i]), c.groups[i].BlockSize, uint32(i))
		}
	}
}

// reconcile shrinks a limit until every set has a hit of that length, and
// returns the longest hit that one set had (vllm/v1/RULES.md §10). Limits only shrink,
// so it ends.
func (c *Cache) reconcile(r *Request, hit *Hit, limit int) (longest int) {
	clear(c.hybrid)
	// One full set and one other agree after one pass.
	onePass := len(c.sets) == 2 && c.sets[0].spec.Kind == Full
	dropped := uint64(0) // bit i: set i has dropped its EAGLE block at this length
	hit.NumTokens = limit
	for {
		length := hit.NumTokens
		for i := range c.sets {
			s := &c.sets[i]
			state := &c.hybrid[s.groups[0]]
			if s.spec.Kind == Full && state.known {
				// A prefix of a hit is a hit: only to be trimmed, below.
				length = min(length, state.tokens)
				continue
			}
			drop := s.eagle && dropped>>i&1 == 0
			got := c.lookupSet(s, r, hit, c.withMargin(s, length, limit, drop), drop)
			if drop {
				dropped |= 1 << i
			} else if got < length {
				dropped = 0
			}
			length = got
			*state = hitState{known: true, tokens: got}
			longest = max(longest, length)
		}
		if length >= hit.NumTokens {
			break
		}
		hit.NumTokens = length
		if onePass {
			break
		}
	}
	for i := range c.sets {
		if s := &c.sets[i]; s.spec.Kind == Full && (i == 0 || c.Config.Exact) {
			c.trimFull(s, hit)
		}
	}
	return longest
}

// withMargin returns how far a set looks: an EAGLE set looks one unit further, which it then drops.
// Mamba drops nothing.
func (c *Cache) withMargin(s *set, length, limit int, drop bool) int {
	if !drop || s.spec.Kind == Mamba {
		return length
	}
	margin := s.spec.BlockSize
	if c.finest && s.spec.fine() && s.spec.BlockSize > c.Config.HashBlockSize {
		margin = c.Config.HashBlockSize
	}
	return min(length+margin, limit)
}

// trimFull cuts the blocks of a set of full attention to the reconciled length.
func (c *Cache) trimFull(s *set, hit *Hit) {
	n := ceil(hit.NumTokens, s.spec.BlockSize)
	for _, g := range s.groups {
		hit.Blocks[g] = hit.Blocks[g][:min(n, len(hit.Blocks[g]))]
	}
}

// lookupSet finds the longest hit of at most limit tokens, writes its blocks to
// hit and returns its length. drop asks it to give up the last block.
func (c *Cache) lookupSet(s *set, r *Request, hit *Hit, limit int, drop bool) int {
	for _, g := range s.groups {
		hit.Blocks[g] = hit.Blocks[g][:0]
	}
	switch s.spec.Kind {
	case SlidingWindow:
		return c.lookupWindow(s, r, hit, limit, drop)
	case ChunkedLocal:
		return c.lookupChunk(s, r, hit, limit)
	case Mamba:
		return c.lookupMamba(s, r, hit, limit)
	}
	return c.lookupFull(s, r, hit, limit, drop)
}

// appendHit adds the block of hash n, counted in hashes, to every group of the
// set, or to none if one group has no such block.
func (c *Cache) appendHit(s *set, r *Request, hit *Hit, n int) bool {
	if n >= len(r.content.Hashes) {
		return false
	}
	h := &r.content.Hashes[n]
	for k, g := range s.groups {
		id, ok := c.pool.Lookup(h, uint32(g))
		if !ok {
			for _, g := range s.groups[:k] {
				hit.Blocks[g] = hit.Blocks[g][:len(hit.Blocks[g])-1]
			}
			return false
		}
		hit.Blocks[g] = append(hit.Blocks[g], id)
	}
	return true
}

// appendNull adds n null blocks to every group of the set.
func appendNull(s *set, hit *Hit, n int) {
	for _, g := range s.groups {
		for range n {
			hit.Blocks[g] = append(hit.Blocks[g], pool.Null)
		}
	}
}

func trim(s *set, hit *Hit, n int) {
	for _, g := range s.groups {
		hit.Blocks[g] = hit.Blocks[g][:n]
	}
}

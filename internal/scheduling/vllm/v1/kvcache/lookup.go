package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A Hit is the cached prefix of a request. It has no references to its blocks, so they can be evicted: a Hit becomes
// stale when a key is removed from any block (vllm/v1/RULES.md §2.5).
type Hit struct {
	NumTokens int
	Blocks    [][]int32 // by group; null blocks for tokens outside windows

	request *Request
	version uint64
}

// Truncate shortens a hit to the given number of tokens, a multiple of every block size.
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

// A hitState is the last result of a set.
type hitState struct {
	known  bool
	tokens int
}

// Lookup sets hit to the longest cached prefix of r that does not include the last token of r. The last token must be
// computed, because its logits are needed (vllm/v1/RULES.md §5). Lookup also sets r.Junction.
func (c *Cache) Lookup(r *Request, hit *Hit) {
	for len(hit.Blocks) < len(c.groups) {
		hit.Blocks = append(hit.Blocks, nil)
	}
	hit.Clear()
	hit.request, hit.version = r, c.Pool.Version()
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

// reconcile sets hit to the longest prefix that is a hit of all sets (vllm/v1/RULES.md §10). It returns the length of
// the longest hit that a lookup in a single set has found. hit.NumTokens decreases in each iteration, so the loop ends.
func (c *Cache) reconcile(r *Request, hit *Hit, limit int) (longest int) {
	clear(c.hybrid)
	// One full set and one other agree after one pass.
	onePass := len(c.sets) == 2 && c.sets[0].spec.Kind == Full
	dropped := uint64(0) // bit i: set i has dropped its EAGLE block for this length
	hit.NumTokens = limit
	for {
		length := hit.NumTokens
		for i := range c.sets {
			s := &c.sets[i]
			state := &c.hybrid[s.groups[0]]
			if s.spec.Kind == Full && state.known {
				// This hit, cut to the shorter length, is also a hit. The blocks after that length are removed below.
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
			trim(s, hit, ceil(hit.NumTokens, s.spec.BlockSize))
		}
	}
	return longest
}

// withMargin returns the limit in tokens of a lookup in a set. With EAGLE the lookup drops the last block that it
// finds, so it may look one block (or one hash block) further. Lookups in Mamba groups may not.
func (c *Cache) withMargin(s *set, length, limit int, drop bool) int {
	if !drop || s.spec.Kind == Mamba {
		return length
	}
	margin := s.spec.BlockSize
	if c.partialHits && s.spec.fine() && s.spec.BlockSize > c.Config.HashBlockSize {
		margin = c.Config.HashBlockSize
	}
	return min(length+margin, limit)
}

// lookupSet finds the longest hit of at most limit tokens in a set, puts its blocks into hit, and returns its length.
// If drop is true, it drops the last block that it finds, or only the last hash block if hits may end inside a block. In
// a Mamba group it drops nothing.
func (c *Cache) lookupSet(s *set, r *Request, hit *Hit, limit int, drop bool) int {
	trim(s, hit, 0)
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

// appendHit looks up hash number n of r in each group of the set, and adds the found blocks to hit, one for each group.
// If a group has no block with this hash, appendHit changes nothing and returns false.
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

func appendNull(s *set, hit *Hit, n int) {
	for _, g := range s.groups {
		for range n {
			hit.Blocks[g] = append(hit.Blocks[g], pool.Null)
		}
	}
}

// trim cuts hit to at most n blocks in each group of the set.
func trim(s *set, hit *Hit, n int) {
	for _, g := range s.groups {
		hit.Blocks[g] = hit.Blocks[g][:min(n, len(hit.Blocks[g]))]
	}
}

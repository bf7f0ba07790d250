package kvcache

// lookupFull is lookupSet for full attention. It walks from the first block to the first block that is not cached. If
// hits may end inside a block, it then looks for the longest cached part of that block (vllm/v1/RULES.md §5, §10).
func (c *Cache) lookupFull(s *set, r *Request, hit *Hit, limit int, drop bool) int {
	size, unit := s.spec.BlockSize, c.hitUnit
	scale := size / c.Config.HashBlockSize
	n := 0
	for n < limit/size && c.appendHit(s, r, hit, (n+1)*scale-1) {
		n++
	}
	tokens := n * size
	if unit < size { // then unit is the hash block
		start := n * scale
		end := min(start+scale-1, limit/unit, len(r.content.Hashes))
		for i := end - 1; i >= start; i-- {
			if c.appendHit(s, r, hit, i) {
				tokens = (i + 1) * unit
				break
			}
		}
	}
	if drop && tokens > 0 {
		tokens -= min(unit, size)
	}
	tokens = floorTo(tokens, unit)
	trim(s, hit, ceil(tokens, size))
	return tokens
}

// lookupWindow is lookupSet for sliding windows. It searches from the end for as many consecutive cached blocks as a
// window needs, and uses null blocks for the tokens before them. If there is no such run, the hit is the run of cached
// blocks from block 0 on, however short (vllm/v1/RULES.md §8).
func (c *Cache) lookupWindow(s *set, r *Request, hit *Hit, limit int, drop bool) int {
	size, unit := s.spec.BlockSize, c.hitUnit
	scale := size / c.Config.HashBlockSize
	need := windowBlocks(&s.spec.Group, drop)
	n := limit / size
	run, end := 0, 0 // blocks in a row, and where they end
	full := false
	for i := n - 1; i >= 0 && !full; i-- {
		if !c.cached(s, r, (i+1)*scale-1) {
			run = 0
			continue
		}
		if run == 0 {
			end = i + 1
			if hitEnd := end - eagleBlock(drop); hitEnd*size%unit != 0 {
				continue // the hit would not end on a boundary
			}
		}
		run++
		full = run >= need
	}
	if !full {
		end = run // it begins with block 0
		for end*size%unit != 0 {
			end--
		}
		run = end
	}
	appendNull(s, hit, end-run)
	for i := end - run; i < end; i++ {
		c.appendHit(s, r, hit, (i+1)*scale-1)
	}
	if drop && end > 0 {
		end--
		for end*size%unit != 0 {
			end--
		}
		trim(s, hit, end)
	}
	return end * size
}

func windowBlocks(g *Group, eagle bool) int {
	return ceil(g.Window-1, g.BlockSize) + eagleBlock(eagle)
}

// eagleBlock returns how many blocks a hit loses at its end: 1 with EAGLE, otherwise 0.
func eagleBlock(eagle bool) int {
	if eagle {
		return 1
	}
	return 0
}

func (c *Cache) cached(s *set, r *Request, n int) bool {
	if n >= len(r.content.Hashes) {
		return false
	}
	for _, g := range s.groups {
		if _, ok := c.pool.Lookup(&r.content.Hashes[n], uint32(g)); !ok {
			return false
		}
	}
	return true
}

// lookupChunk is lookupSet for chunked local attention. It starts at the beginning of the chunk in which the token at
// position limit is, and walks to the first block that is not cached. All blocks before this chunk are null blocks
// (vllm/v1/RULES.md §8).
func (c *Cache) lookupChunk(s *set, r *Request, hit *Hit, limit int) int {
	size := s.spec.BlockSize
	scale := size / c.Config.HashBlockSize
	n := floorTo(max(limit, 0), s.spec.Chunk) / size
	appendNull(s, hit, n)
	for n < limit/size && c.appendHit(s, r, hit, (n+1)*scale-1) {
		n++
	}
	return n * size
}

// lookupMamba is lookupSet for Mamba. It searches for the last cached state; the request does not need the states
// before it (vllm/v1/RULES.md §13).
func (c *Cache) lookupMamba(s *set, r *Request, hit *Hit, limit int) int {
	size, unit := s.spec.BlockSize, c.hitUnit
	step := min(size, unit)
	scale := step / c.Config.HashBlockSize
	for n := min(limit/step, len(r.content.Hashes)/scale); n > 0; n-- {
		tokens := n * step
		if tokens%unit != 0 || !c.cached(s, r, n*scale-1) {
			continue
		}
		appendNull(s, hit, (tokens-1)/size)
		c.appendHit(s, r, hit, n*scale-1)
		return tokens
	}
	return 0
}

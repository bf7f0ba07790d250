package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// A mambaSplit clips chunks of prefill so that they end where a Mamba state can
// be cached: slot p of a table holds the state after (p+1)×block tokens
// (vllm/v1/RULES.md §13).
type mambaSplit struct {
	noExtension
	block  int   // tokens, the most of a group; 0: no group is Mamba in align mode
	sizes  []int // of the blocks of all these groups
	hash   int   // tokens of a hash, if the prompt's last hash is a place to stop; else 0
	eagle  bool
	budget int // most tokens of one chunk
}

func newMambaSplit(c *Config, cache *kvcache.Cache) *mambaSplit {
	m := &mambaSplit{}
	config := &cache.Config
	for i := range config.Groups {
		g := &config.Groups[i]
		if g.Kind == kvcache.Mamba && g.Align {
			m.block = max(m.block, g.BlockSize)
			m.sizes = append(m.sizes, g.BlockSize)
		}
		m.eagle = m.eagle || g.Eagle
	}
	m.eagle = m.eagle || config.Eagle
	if cache.Config.PartialBlockHits() {
		m.hash = config.HashBlockSize
	}
	m.budget = c.MaxNumBatchedTokens
	if c.LongPrefillTokenThreshold > 0 {
		m.budget = min(m.budget, c.LongPrefillTokenThreshold)
	}
	return m
}

// clipsDecodes reports whether a prompt can be hit up to its last token, so that
// its first step is as short as a decode.
func (m *mambaSplit) clipsDecodes() bool { return m.block == 1 || m.hash == 1 }

// clip returns how many of n tokens after the first start ones to compute.
func (m *mambaSplit) clip(q *request, start, n int) int {
	r := q.kv
	prefill := max(r.NumPromptTokens, r.NumTokens()-1) // a resumed request computes outputs again
	if start >= prefill || n <= 0 {
		return n
	}
	end := start + n
	if end < prefill {
		// A block wider than any chunk is computed in parts.
		if aligned := end - end%m.block; aligned > start || m.block <= m.budget {
			end = aligned
		}
	}
	for _, stop := range m.stops(r, start, end) {
		if start < stop && stop < end {
			end = stop
		}
	}
	return max(end-start, 0)
}

// stops are the places where a chunk from start must end if it comes past: the
// first end of a block that it begins inside, the last end of a block in the
// sequence, the prompt's last hash, and the junction with another request's
// prefix. 0 is none.
func (m *mambaSplit) stops(r *kvcache.Request, start, end int) [4]int {
	var stops [4]int
	for _, size := range m.sizes {
		if at := (start/size + 1) * size; start%size != 0 && (stops[0] == 0 || at < stops[0]) {
			stops[0] = at
		}
	}
	last := r.NumTokens() - r.NumTokens()%m.block
	if m.eagle { // which gives up the last block of a hit
		last = max(last-m.block, 0)
	}
	stops[1] = last
	if m.hash > 0 {
		tail := r.NumPromptTokens - r.NumPromptTokens%m.hash
		if last < tail && tail < r.NumPromptTokens {
			stops[2] = tail
		}
	}
	if j := r.Junction; start < j && j < end {
		stops[3] = start + (j-start)/m.block*m.block
	}
	return stops
}

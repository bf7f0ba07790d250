package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// mambaSplit is the extension for Mamba states. It ends the chunks of prompts at positions whose states can be cached
// (vllm/v1/RULES.md §13).
type mambaSplit struct {
	noExtension
	block  int   // largest block size of Mamba groups in align mode; 0: there are no such groups
	sizes  []int // all their block sizes
	hash   int   // tokens of a hash if a chunk ends at the last hash of the prompt, else 0
	eagle  bool
	budget int // largest number of tokens of a chunk
}

func newMambaSplit(c *Config, cache *kvcache.Cache) *mambaSplit {
	config := &cache.Config
	m := &mambaSplit{eagle: c.readsAhead(), budget: c.MaxNumBatchedTokens}
	for i := range config.Groups {
		g := &config.Groups[i]
		if g.Kind == kvcache.Mamba && g.Align {
			m.block = max(m.block, g.BlockSize)
			m.sizes = append(m.sizes, g.BlockSize)
		}
	}
	if config.PartialBlockHits() {
		m.hash = config.HashBlockSize
	}
	if c.LongPrefillTokenThreshold > 0 {
		m.budget = min(m.budget, c.LongPrefillTokenThreshold)
	}
	return m
}

// clipsDecodes reports whether even a chunk of one token and its drafts can be shortened, because a state can be
// cached after every token.
func (m *mambaSplit) clipsDecodes() bool { return m.block == 1 || m.hash == 1 }

func (m *mambaSplit) clip(q *request, start, n int) int {
	r := q.kv
	prefill := max(r.NumPromptTokens, r.NumTokens()-1) // a resumed request computes outputs again
	if start >= prefill || n <= 0 {
		return n
	}
	end := start + n
	if end < prefill {
		// A block longer than any chunk is computed in parts.
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

// stops returns positions that cut a chunk from start to end. The first is the end of the block with token start, if
// start is inside a block. The second is the last end of a block in the sequence; with EAGLE it is one block earlier.
// The third is the end of the last hash of the prompt, and the fourth the last end of a block in r.Junction. 0 means
// that there is no such position. The caller ignores positions that are not inside the chunk.
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

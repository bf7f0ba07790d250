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
	exact  bool // a chunk ends before the last token, not only after it (vllm/v1/RULES.md §17)
	budget int  // largest number of tokens of a chunk
}

func newMambaSplit(c *Config, cache *kvcache.Cache) *mambaSplit {
	config := &cache.Config
	m := &mambaSplit{eagle: c.readsAhead(), exact: config.Exact, budget: c.MaxNumBatchedTokens}
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

// clipsDecodes reports whether a state can be cached after every token. If so, clip can shorten even a chunk of one
// token and its drafts.
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

// stops returns positions at which a chunk must end, 0 for a position that does not exist:
//
//   - the nearest end of a block that contains start, if start is inside the block
//   - the end of the last full block of the sequence; with EAGLE, and if the sequence ends there and m.exact is set, the
//     end of the block before that one
//   - the last multiple of the hash size in the prompt, if hits can end inside a block, and this multiple is after the
//     second position and before the end of the prompt
//   - if r.Junction is between start and end: the last position up to r.Junction whose distance from start is a
//     multiple of the block size m.block
//
// The caller ignores positions that are not between start and end.
func (m *mambaSplit) stops(r *kvcache.Request, start, end int) [4]int {
	var stops [4]int
	for _, size := range m.sizes {
		if blockEnd := (start/size + 1) * size; start%size != 0 && (stops[0] == 0 || blockEnd < stops[0]) {
			stops[0] = blockEnd
		}
	}
	last := r.NumTokens() - r.NumTokens()%m.block
	if m.eagle || m.exact && last == r.NumTokens() { // a hit of the same sequence does not have the last block
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

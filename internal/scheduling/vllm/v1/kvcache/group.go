package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A group is a Group with its state.
type group struct {
	Group
	id     uint32
	cap    int  // mostAdmitted
	eagle  bool // hits lose their last block, because a group of the set is Eagle
	owners int  // requests with a table that owns

	// justStored has the keys of the states that a Mamba group stores in this step. The states are computed only
	// when the step has run, so no request may hit them before (vllm/v1/RULES.md §13).
	justStored []pool.Key
}

// mostAdmitted returns the largest number of blocks that admission counts for the group; 0: no limit.
func (g *Group) mostAdmitted(c *Config) int {
	if g.Kind == SlidingWindow || g.Kind == ChunkedLocal {
		return g.MostBlocks(c.MaxModelLen, c.MaxInFlightTokens)
	}
	return 0
}

// MostBlocks returns the largest number of blocks of a request with the given number of tokens, of which inFlight
// are in steps in flight (vLLM: max_memory_usage_bytes, divided by the page; vllm/v1/RULES.md §6).
func (g *Group) MostBlocks(tokens, inFlight int) int {
	switch {
	case g.Kind == SlidingWindow: // plus one, because a window can begin inside a block
		return ceil(min(g.Window-1+g.Retained+inFlight, tokens), g.BlockSize) + 1
	case g.Kind == ChunkedLocal:
		return ceil(min(g.Chunk+inFlight, tokens), g.BlockSize)
	case g.aligned():
		return 2 + g.NumSpeculativeBlocks
	}
	return ceil(tokens, g.BlockSize) + g.NumSpeculativeBlocks
}

// skipped counts the first tokens outside the window when computed tokens are computed (vllm/v1/RULES.md §8).
func (g *Group) skipped(computed int) int {
	switch g.Kind {
	case SlidingWindow:
		return max(0, computed-g.Window+1-g.Retained)
	case ChunkedLocal:
		return floorTo(computed, g.Chunk)
	case Mamba:
		return max(0, computed-1)
	}
	return 0
}

func (g *Group) aligned() bool { return g.Kind == Mamba && g.Align }

func (g *Group) fine() bool { return g.Kind == Full || g.Kind == Mamba }

// A set has groups with the same layout. A hit of a set is a hit in all its groups.
type set struct {
	groups []int
	spec   *group // the first one
	eagle  bool   // some group is Eagle
}

package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A group is a Group at work.
type group struct {
	Group
	id     uint32
	cap    int  // mostAdmitted
	eagle  bool // see Group.Eagle
	owners int  // requests that own a table here

	// justStored are the keys that a Mamba group stored in this step: their
	// states are only there when the step has run, so no request may hit them
	// (vllm/v1/RULES.md §13).
	justStored []pool.Key
}

func newGroup(g Group, id int, c *Config) group {
	return group{Group: g, id: uint32(id), cap: g.mostAdmitted(c)}
}

// mostAdmitted is the most blocks that a request is admitted for; 0: no limit.
func (g *Group) mostAdmitted(c *Config) int {
	if g.Kind == SlidingWindow || g.Kind == ChunkedLocal {
		return g.MostBlocks(c.MaxModelLen, c.MaxInFlightTokens)
	}
	return 0
}

// MostBlocks is the most blocks that one request of the given tokens holds at a time, with inFlight of them
// scheduled and not settled (vLLM: max_memory_usage_bytes, divided by the page). Of windows and
// chunks, others have left by then (vllm/v1/RULES.md §6).
func (g *Group) MostBlocks(tokens, inFlight int) int {
	switch {
	case g.Kind == SlidingWindow: // plus one, because a window need not start at a block
		return ceil(min(g.Window-1+g.Retained+inFlight, tokens), g.BlockSize) + 1
	case g.Kind == ChunkedLocal:
		return ceil(min(g.Chunk+inFlight, tokens), g.BlockSize)
	case g.aligned():
		return 2 + g.NumSpeculativeBlocks
	}
	return ceil(tokens, g.BlockSize) + g.NumSpeculativeBlocks
}

// skipped is how many of the first tokens are outside the window once computed tokens are there
// (vllm/v1/RULES.md §8).
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

// aligned reports whether the group is Mamba in align mode.
func (g *Group) aligned() bool { return g.Kind == Mamba && g.Align }

// fine reports whether the group can be hit inside a block.
func (g *Group) fine() bool { return g.Kind == Full || g.Kind == Mamba }

// A set is groups with the same layout, which are looked up together: a hit is
// a hit in all of them.
type set struct {
	groups []int
	spec   *group // of the first one
	eagle  bool
}

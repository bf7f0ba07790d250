package kvcache

import "llmmemory/internal/scheduling/vllm/v1/pool"

// A group is a Group with its state.
type group struct {
	Group
	id     uint32
	cap    int  // maxAdmitted
	eagle  bool // hits lose their last block, because a group of the set is Eagle
	owners int  // number of requests whose table.owns is true

	// justStored has the keys of the states that a Mamba group stores in the current step. No request may adopt these
	// states in the same step, because they are computed only when the step runs (vllm/v1/RULES.md §13).
	justStored []pool.Key
}

// maxAdmitted returns the largest number of blocks of the group that a request can have at one time. Allocate uses it
// to check whether the whole sequence of a request fits. 0 means that there is no limit.
func (g *Group) maxAdmitted(c *Config) int {
	if g.Kind == SlidingWindow || g.Kind == ChunkedLocal {
		return g.MaxBlocks(c.MaxModelLen, c.MaxInFlightTokens)
	}
	return 0
}

// MaxBlocks returns the largest number of blocks that a request of the given number of tokens can have. The parameter
// inFlight is the number of these tokens that are in steps in flight (vLLM: max_memory_usage_bytes, divided by the page
// size; vllm/v1/RULES.md §6).
func (g *Group) MaxBlocks(tokens, inFlight int) int {
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

// skipped returns how many of the computed tokens the next token does not read, because they are before its window
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

func (g *Group) aligned() bool { return g.Kind == Mamba && g.Align }

func (g *Group) fine() bool { return g.Kind == Full || g.Kind == Mamba }

// A set has all groups that are equal in every field of Group except Eagle. A prefix is a hit of the set if all its
// groups have cached the blocks that a hit of this prefix needs.
type set struct {
	groups []int
	spec   *group // the first one
	eagle  bool   // some group is Eagle
}

package memplan

import (
	"errors"
	"fmt"
	"sort"

	"llmmemory/internal/vllm/v1/kvcache"
)

// ErrMemory is wrapped when not even one request of the longest length fits.
var ErrMemory = errors.New("not enough memory")

// BytesPerBlock is what one block of every tensor takes.
func (p *Plan) BytesPerBlock() int {
	n := 0
	for i := range p.Tensors {
		n += p.Tensors[i].Bytes / max(p.NumGPUBlocks, 1)
	}
	return n
}

// blocksFor is the most blocks that one request of so many tokens holds in the group
// (vLLM's max_memory_usage_bytes, divided by the page).
func (g *Group) blocksFor(tokens, inFlight int) int {
	switch {
	case g.Kind == kvcache.SlidingWindow:
		return ceil(min(g.Window-1+g.Retained+inFlight, tokens), g.BlockSize) + 1
	case g.Kind == kvcache.ChunkedLocal:
		return ceil(min(g.Chunk+inFlight, tokens), g.BlockSize)
	case g.Kind == kvcache.Mamba && g.Align:
		return 2 + g.NumSpeculativeBlocks
	case g.Kind == kvcache.Mamba:
		return ceil(tokens, g.BlockSize) + g.NumSpeculativeBlocks
	}
	return ceil(tokens, g.BlockSize)
}

// BytesFor is what one request of so many tokens takes, with inFlight tokens
// scheduled and not settled.
func (p *Plan) BytesFor(tokens, inFlight int) int {
	blocks := 0
	for i := range p.Groups {
		blocks += p.Groups[i].blocksFor(tokens, inFlight)
	}
	return blocks * p.BytesPerBlock()
}

// LongestModelLen is the longest request, of at most most tokens, that the plan's
// blocks hold; 0 if there is none.
func (p *Plan) LongestModelLen(most, inFlight int) int {
	return sort.Search(most, func(i int) bool { return p.BytesFor(i+1, inFlight) > p.available() })
}

func (p *Plan) available() int { return p.NumGPUBlocks * p.BytesPerBlock() }

// CheckModelLen wraps ErrMemory if a request of maxModelLen tokens does not fit,
// with the figures that vLLM gives (_check_enough_kv_cache_memory).
func (p *Plan) CheckModelLen(maxModelLen, inFlight int) error {
	need := p.BytesFor(maxModelLen, inFlight)
	if need <= p.available() {
		return nil
	}
	return fmt.Errorf("%w: to serve one request of %d tokens, %s GiB are needed, and %s GiB are available; the longest that fits is %d",
		ErrMemory, maxModelLen, gib(need), gib(p.available()), p.LongestModelLen(maxModelLen, inFlight))
}

func gib(bytes int) string { return fmt.Sprintf("%.2f", float64(bytes)/(1<<30)) }

func ceil(a, b int) int { return (a + b - 1) / b }

package memplan

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// ErrMemory is wrapped if a request of MaxModelLen tokens does not fit into the memory.
var ErrMemory = errors.New("not enough memory")

func (p *Plan) bytesPerBlock() int {
	n := 0
	for i := range p.Tensors {
		if p.Tensors[i].Stride > 0 {
			return p.Tensors[i].Stride
		}
		n += p.Tensors[i].Bytes / max(p.NumGPUBlocks, 1)
	}
	return n
}

// BytesFor returns how many bytes a request with the given number of tokens takes. The parameter inFlight is the number
// of these tokens that are in steps in flight. The result is at most math.MaxInt.
func (p *Plan) BytesFor(tokens, inFlight int) int {
	blocks := 0
	for i := range p.Groups {
		blocks += p.Groups[i].MaxBlocks(tokens, inFlight)
	}
	if bytes := p.bytesPerBlock(); bytes == 0 || blocks <= math.MaxInt/bytes {
		return blocks * bytes
	}
	return math.MaxInt
}

// LongestModelLen returns the length of the longest request that fits into the plan's blocks, also while the given
// number of steps are in flight. The length is at most limit. It is 0 if no request fits. Unlike vLLM,
// LongestModelLen does not count the null block.
func (p *Plan) LongestModelLen(limit, inFlight, steps int) (int, error) {
	c, err := p.cache(limit, inFlight)
	if err != nil {
		return 0, err
	}
	n := sort.Search(limit, func(i int) bool {
		return p.BytesFor(i+1, inFlight) > p.available() || c.Config.PeakBlocks(i+1, steps) > p.NumGPUBlocks-1
	})
	if n < 2 {
		return 0, nil // a request has at least one prompt token and one generated token
	}
	return n, nil
}

func (p *Plan) cache(limit, inFlight int) (*kvcache.Cache, error) {
	config := kvcache.Config{
		NumGPUBlocks: 2, MaxModelLen: limit, MaxInFlightTokens: inFlight, EnablePrefixCaching: true, Hash: blockhash.LE{},
	}
	for i := range p.Groups {
		config.Groups = append(config.Groups, p.Groups[i].Group)
	}
	c, err := kvcache.New(config)
	if err != nil { // some groups do not support prefix caching
		config.EnablePrefixCaching = false
		c, err = kvcache.New(config)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayers, err)
	}
	return c, nil
}

func (p *Plan) available() int { return (p.NumGPUBlocks - 1) * p.bytesPerBlock() }

// CheckModelLen returns an error that wraps ErrMemory if longest, a result of LongestModelLen, is below maxModelLen.
func (p *Plan) CheckModelLen(maxModelLen, inFlight, longest int) error {
	if longest >= maxModelLen {
		return nil
	}
	return fmt.Errorf("%w: to serve one request of %d tokens, %s GiB are needed, and %s GiB are available without the null block; the longest that fits is %d",
		ErrMemory, maxModelLen, gib(p.BytesFor(maxModelLen, inFlight)), gib(p.available()), longest)
}

func gib(bytes int) string { return fmt.Sprintf("%.2f", float64(bytes)/(1<<30)) }

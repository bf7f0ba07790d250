package main

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
)

// A gpuPlan says how the flags divide the memory of a GPU.
type gpuPlan struct {
	engine      engine.Config // with the limits of batches; KVCacheBytes is 0 if --gpu-memory-utilization says how much
	model       *model.Config
	budget      *gpu.Budget
	utilization float64
}

func (p *gpuPlan) limits() engine.RunnerConfig {
	c := engine.RunnerConfig{MaxNumBatchedTokens: p.engine.MaxNumBatchedTokens, MaxNumSeqs: p.engine.MaxNumSeqs, MaxModelLen: p.model.MaxModelLen}
	if n := p.engine.MaxModelLen; n > 0 {
		c.MaxModelLen = min(c.MaxModelLen, n)
	}
	return c
}

// left returns the memory that weights and batches leave for keys and values.
func (p *gpuPlan) left() int {
	if p.engine.KVCacheBytes > 0 {
		return p.budget.Left(1, p.limits())
	}
	return p.budget.Left(p.utilization, p.limits())
}

// kvCacheBytes returns the size of the keys and values, or an error if the memory is too small.
func (p *gpuPlan) kvCacheBytes() (int64, error) {
	minBytes, token, err := p.engine.MinKVCacheBytes(p.model)
	if err != nil {
		return 0, err
	}
	if n := p.missing(); n > 0 {
		return 0, p.refusal(n)
	}
	if p.engine.KVCacheBytes > 0 {
		return p.engine.KVCacheBytes, nil
	}
	return max(minBytes, int64(p.budget.KVCacheBytes(p.left(), token))), nil
}

// missing returns how many bytes are missing for weights, batches, keys and values. For keys and values it counts
// KVCacheBytes, but at least the minimum of MinKVCacheBytes. The result is not positive if the memory is enough.
func (p *gpuPlan) missing() int {
	minBytes, token, err := p.engine.MinKVCacheBytes(p.model)
	if err != nil {
		return math.MaxInt
	}
	return p.budget.WithAttention(int(max(minBytes, p.engine.KVCacheBytes)), token) - p.left()
}

func (p *gpuPlan) refusal(missing int) error {
	b, limits := p.budget, p.limits()
	kv, purpose, unused := int(p.engine.KVCacheBytes), fmt.Sprintf("keys and values (--kv-cache-gb %.3g)", float64(p.engine.KVCacheBytes)/(1<<30)), ""
	if kv == 0 {
		c := p.engine
		minBytes, _, _ := c.MinKVCacheBytes(p.model) // kvCacheBytes has checked the error
		c.KVCacheBytes = minBytes
		longest, _ := c.Check(p.model, 1)
		kv, purpose = int(minBytes), fmt.Sprintf("keys and values of one sequence of %d tokens", longest)
		unused = fmt.Sprintf(", of which --gpu-memory-utilization %v leaves %s unused", p.utilization, cuda.BytesText(b.Unused(p.utilization)))
	}
	return fmt.Errorf("not enough GPU memory: %v: %s of weights, %s for batches and %s for %s need %s more than there is: %s of %s are free%s: %s",
		b.Device(), cuda.BytesText(b.Weights), cuda.BytesText(b.Batches(limits)), cuda.BytesText(kv), purpose, cuda.BytesText(missing),
		cuda.BytesText(b.Free), cuda.BytesText(b.Total), unused, p.advice())
}

// advice names the values of flags with which the memory would suffice.
func (p *gpuPlan) advice() string {
	var all []string
	if p.engine.KVCacheBytes > 0 {
		if gib := p.largestKVCache(); gib > 0 {
			all = append(all, fmt.Sprintf("--kv-cache-gb %v", gib))
		}
	} else {
		percent := sort.Search(101, func(n int) bool {
			other := *p
			other.utilization = float64(n) / 100
			return other.missing() <= 0
		})
		if percent <= 100 {
			all = append(all, fmt.Sprintf("--gpu-memory-utilization %v", float64(percent)/100))
		}
	}
	for _, f := range []struct {
		name           string
		minimum, given int
		set            func(*engine.Config, int)
	}{
		{"--max-num-seqs", 1, p.engine.MaxNumSeqs, func(c *engine.Config, n int) { c.MaxNumSeqs = n }},
		{"--max-num-batched-tokens", 1, p.engine.MaxNumBatchedTokens, func(c *engine.Config, n int) { c.MaxNumBatchedTokens = n }},
		{"--max-model-len", 2, p.limits().MaxModelLen, func(c *engine.Config, n int) { c.MaxModelLen = n }},
	} {
		reduction := sort.Search(f.given-f.minimum, func(i int) bool {
			other := *p
			f.set(&other.engine, f.given-1-i)
			return other.missing() <= 0
		})
		if n := f.given - 1 - reduction; n >= f.minimum {
			all = append(all, fmt.Sprintf("%s %d", f.name, n))
		}
	}
	if len(all) == 0 {
		return p.smallerBatches()
	}
	return strings.Join(all, " or ") + " would suffice"
}

// smallerBatches names a value of --max-num-seqs and a value of --max-num-batched-tokens. If both flags have these
// values, the memory suffices. If there are no such values, the text says so.
func (p *gpuPlan) smallerBatches() string {
	for other := *p; other.engine.MaxNumSeqs > 1 || other.engine.MaxNumBatchedTokens > 1; {
		c := &other.engine
		c.MaxNumSeqs, c.MaxNumBatchedTokens = (c.MaxNumSeqs+1)/2, (c.MaxNumBatchedTokens+1)/2
		if other.missing() <= 0 {
			return fmt.Sprintf("--max-num-seqs %d together with --max-num-batched-tokens %d would suffice", c.MaxNumSeqs, c.MaxNumBatchedTokens)
		}
	}
	return "no flag makes it enough: give a model with smaller weights, or end other programs on this GPU"
}

// largestKVCache returns the largest value of --kv-cache-gb for which the memory suffices, rounded down, or 0.
func (p *gpuPlan) largestKVCache() float64 {
	_, token, err := p.engine.MinKVCacheBytes(p.model)
	if err != nil || p.left() <= 0 {
		return 0
	}
	gib := float64(p.budget.KVCacheBytes(p.left(), token)) / (1 << 30)
	digits := math.Pow(10, 3-math.Ceil(math.Log10(gib))) // three significant ones
	gib = math.Floor(gib*digits) / digits
	other := *p
	if other.engine.KVCacheBytes = int64(gib * (1 << 30)); other.engine.KVCacheBytes < 1 || other.missing() > 0 {
		return 0
	}
	return gib
}

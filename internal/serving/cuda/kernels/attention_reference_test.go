package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/parallel"
)

// requireMatches compares outputs with sums in float64.
//
// An output o is the sum of p v over all keys, where p is the weight of a key and v its value. The kernel rounds each
// weight and the output to 16 bits, each with a relative error of at most u. It sums the weights after rounding them,
// so the rounding of a weight p changes the output by at most u p |v - o|. Hence the error of an output is at most
//
//	u |o| + sum of u p |v - o|
//
// In problems with positive values, the mean of |v - o| is less than |o|, so the error is at most 2 u |o|. In the other
// problems, values of both signs cancel, and no kernel with weights of 16 bits can reach 2 u |o|.
func (p *problem) requireMatches(t require.TestingT, n numbers, got []float64) {
	u := map[kernels.Type]float64{kernels.F16: 0x1p-11, kernels.BF16: 0x1p-8}[p.Type]
	starts, _ := p.starts()
	for s, queries := range p.queries {
		for i := range queries * p.Heads {
			token, head := i/p.Heads, i%p.Heads
			offset := (int(starts[s])*p.Heads + i) * p.HeadSize
			weights, first := p.weights(n, s, p.lens[s]-queries+token, head, n.query[offset:][:p.HeadSize])
			values := n.values[head/(p.Heads/p.KVHeads)][s]
			for e := range p.HeadSize {
				want, spread := 0.0, 0.0
				for k, w := range weights {
					want += w * values[(first+k)*p.HeadSize+e]
				}
				for k, w := range weights {
					spread += w * math.Abs(values[(first+k)*p.HeadSize+e]-want)
				}
				allowed := u*(math.Abs(want)+spread) + 1e-5*spread + 1e-7
				if p.positive {
					allowed = 2*u*math.Abs(want) + 1e-7
				}
				if x := got[offset+e]; !(math.Abs(x-want) <= allowed) {
					require.FailNowf(t, "wrong output", "sequence %d, token %d, head %d, element %d: %v, want %v within %.1e", s, token, head, e, x, want, allowed)
				}
			}
		}
	}
}

// weights returns, in float64, the weights of the keys that a query attends to. It also returns the position of the
// first of these keys.
func (p *problem) weights(n numbers, s, position, head int, query []float64) (weights []float64, first int) {
	if p.window > 0 {
		first = max(0, position+1-p.window)
	}
	keys := n.keys[head/(p.Heads/p.KVHeads)][s]
	largest, sum := math.Inf(-1), 0.0
	if p.sinks {
		largest = n.sinks[head]
	}
	for k := first; k <= position; k++ {
		x := 0.0
		for e, q := range query {
			x += q * keys[k*p.HeadSize+e]
		}
		x /= math.Sqrt(float64(p.HeadSize))
		if p.softCap != 0 {
			x = float64(p.softCap) * math.Tanh(x/float64(p.softCap))
		}
		if p.slopes {
			x += n.slopes[head] * float64(k-position)
		}
		weights, largest = append(weights, x), max(largest, x)
	}
	if p.sinks {
		sum = math.Exp(n.sinks[head] - largest)
	}
	for i, x := range weights {
		weights[i] = math.Exp(x - largest)
		sum += weights[i]
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights, first
}

// onCPU computes a problem with package attention, one KV head at a time.
func (p *problem) onCPU(t *testing.T, n numbers) []float64 {
	t.Helper()
	m := p.inMemory(n)
	starts, lens := p.starts()
	kind, size := map[kernels.Type]attention.DType{kernels.F16: attention.F16, kernels.BF16: attention.BF16}[p.Type], p.cacheType().Size()
	group, width := p.Heads/p.KVHeads, p.Heads*p.HeadSize
	query, out := encode(p.Type, n.query), make([]byte, 2*len(n.query))
	pool, err := parallel.New(1)
	require.NoError(t, err)
	defer pool.Close()
	runner := attention.NewRunner(pool)
	for kv := range p.KVHeads {
		block, offset, heads := size*p.BlockSize*p.HeadSize, size*kv*p.BlockSize*p.HeadSize, 2*kv*group*p.HeadSize
		cache := attention.Cache{Shape: attention.Shape{BlockSize: p.BlockSize, NumKVHeads: 1, HeadSize: p.HeadSize, DType: p.cacheType(), Layout: attention.LayoutFlash},
			NumBlocks: len(m.keys) / block / p.KVHeads, Key: m.keys[offset:], Value: m.values[offset:], BlockStride: p.KVHeads * block}
		batch := attention.Batch{NumHeads: group, Query: attention.Tensor{DType: kind, Data: query[heads:], Stride: width},
			Out: attention.Tensor{DType: kind, Data: out[heads:], Stride: width}, QueryStart: starts, SeqLens: lens, BlockTables: m.blocks,
			TableStride: m.stride, Scale: float32(1 / math.Sqrt(float64(p.HeadSize))), SlidingWindow: p.window, SoftCap: p.softCap}
		if p.slopes {
			batch.AlibiSlopes = float32s(n.slopes[kv*group:][:group])
		}
		if p.sinks {
			batch.Sinks = float32s(n.sinks[kv*group:][:group])
		}
		require.NoError(t, runner.Forward(&cache, &batch))
	}
	return decode(p.Type, out)
}

func float32s(x []float64) []float32 {
	narrow := make([]float32, len(x))
	for i, v := range x {
		narrow[i] = float32(v)
	}
	return narrow
}

package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/ptx"
)

// Ensure that the PTX of a kernel leaves the same bytes in memory as its source, compiled for the host.
func TestThePTXLeavesTheBytesOfTheSources(t *testing.T) {
	g := newGPU(t)
	interpreter := g.Interpret(t)
	p := problem{AttentionShape: shape(kernels.F16, 64, 1, 1, 16), lens: []int{20}, queries: []int{20}}
	p.run(g, p.numbers(), one)
	require.NotZero(t, interpreter.Kernel("paged_attention_prefill_f16_64").Total().MMA)
}

// Ensure that this is so for every kernel, that nearly all instructions of each are executed, and that each mma finds its
// operands in registers in a row.
func TestThePTXOfEveryKernelLeavesTheBytesOfTheSources(t *testing.T) {
	level.SkipNormal(t)
	interpreters = nil
	var names []string
	for name, test := range map[string]func(t *testing.T){
		"activations": TestActivationsMatchFloat64, "sums": TestSumsMatchFloat64, "embeddings": TestEmbeddingTakesTheRowsOfTokens,
		"the largest": TestTheLargestLogitIsThatOfTheCPU, "samples": TestSampleChoosesAsTheCPU, "norms": TestNormsMatchFloat64, "copies": TestCopyBlocks, "swaps": TestSwapBlocksOutAndIn,
		"writes": TestReshapeAndCacheWritesTheSlots, "writes of 8 bits": TestReshapeAndCacheRoundsAsTheCPU, "positions": TestQKNormRopeAndCacheMatchesFloat64,
		"products": interpretProducts, "attention": interpretAttention,
		"all names": func(t *testing.T) { names = newGPU(t).set.Names() },
	} {
		t.Run(name, test)
	}
	for _, name := range names {
		var ran []*ptx.Kernel
		for _, i := range interpreters {
			if k := i.Kernel(name); k != nil {
				ran = append(ran, k)
			}
		}
		require.NotEmpty(t, ran, "no test of this list launches %s", name)
		left, all := ran[0].Unexecuted(ran...)
		require.LessOrEqual(t, len(left), all*7/100, "the launches of this list do not execute these instructions of %s: %q", name, left)
		for _, k := range ran {
			require.Zero(t, k.Total().Moves, "moves before mma in %s", name)
		}
	}
	require.Greater(t, len(names), 90)
}

// interpretProducts launches every kernel for products: for few rows and for many, with sums in one part and in several,
// and with functions.
func interpretProducts(t *testing.T) {
	g := newGPU(t)
	space := newWorkspace(g)
	for _, kind := range types {
		for _, format := range weightFormats {
			for _, columns := range []int{768, 1024} { // sums in one part, and in two
				m := newMatrix(g, kind, format, 32, columns)
				for _, rows := range []int{3, 30} {
					m.multiply(g, space, random(kind, 5, rows*columns), one)
				}
				if columns == 768 {
					continue
				}
				m.multiply(g, space, random(kind, 6, 200*columns), one)
				if format == kernels.Plain {
					for _, rows := range []int{40, 100, 300} {
						m.multiply(g, space, random(kind, 6, rows*columns), many)
					}
				}
				for _, function := range []kernels.Function{kernels.SiLUAndMul, kernels.GELUTanhAndMul} {
					m.gated(g, function).multiply(g, space, random(kind, 7, 3*columns), one)
				}
				m.gated(g, kernels.SiLUAndMul).multiply(g, space, random(kind, 7, 200*columns), one)
			}
		}
	}
}

// interpretAttention launches every kernel for attention.
func interpretAttention(t *testing.T) {
	g := newGPU(t)
	for _, kind := range types {
		for _, cache := range []kernels.CacheType{kernels.CacheAuto, kernels.CacheE4M3} {
			for _, size := range []int{64, 80, 96, 128, 256} {
				p := problem{AttentionShape: shapeFP8(cache, kind, size, 2, 1, 16), lens: []int{600, 40, 3}, queries: []int{1, 20, 1}}
				p.run(g, p.numbers(), many)
				p = problem{AttentionShape: p.AttentionShape, lens: []int{300, 290}, queries: []int{1, 20}, window: 60, softCap: 9, slopes: true, sinks: true}
				p.run(g, p.numbers(), one)
				p = problem{AttentionShape: p.AttentionShape, lens: []int{600}, queries: []int{1}, apart: true}
				p.run(g, p.numbers(), many)
			}
		}
	}
	p := problem{AttentionShape: shape(kernels.F16, 64, 1, 1, 16), lens: []int{8500}, queries: []int{1}, sinks: true, apart: true}
	p.run(g, p.numbers(), many)
}

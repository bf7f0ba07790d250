package kernels_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// Ensure that the PTX of a kernel leaves the same bytes in memory as its source, compiled for the host.
func TestThePTXLeavesTheBytesOfTheSources(t *testing.T) {
	g := newGPU(t)
	interpreter := g.Interpret(t)
	p := problem{AttentionShape: shape(kernels.F16, 64, 1, 1, 16), lens: []int{20}, queries: []int{20}}
	p.run(g, p.numbers(), one)
	require.NotZero(t, interpreter.Kernel("paged_attention_prefill_f16_64").Total().MMA)
}

// Ensure that this is so for every kernel.
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
		ran := slices.ContainsFunc(interpreters, func(i *cudatest.Interpreter) bool { return i.Kernel(name) != nil })
		require.True(t, ran, "no test of this list launches %s", name)
	}
	require.Greater(t, len(names), 90)
}

// interpretProducts launches every kernel for products.
func interpretProducts(t *testing.T) {
	g := newGPU(t)
	space := newWorkspace(g)
	for _, kind := range types {
		for _, format := range weightFormats {
			m := newMatrix(g, kind, format, 20, 512)
			for _, rows := range []int{3, 200} { // 200 are more than the kernels for few rows have
				m.multiply(g, space, random(kind, 5, rows*m.Columns), one)
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
				p := problem{AttentionShape: shapeFP8(cache, kind, size, 2, 1, 16), lens: []int{600, 40}, queries: []int{1, 20}}
				p.run(g, p.numbers(), many)
			}
		}
	}
	p := problem{AttentionShape: shape(kernels.F16, 64, 2, 1, 16), lens: []int{600}, queries: []int{1}, apart: true}
	p.run(g, p.numbers(), many)
}

package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/testkit/level"
)

// A mainLoop says what the loop of a kernel with the most mma costs at most, for each mma of a warp.
type mainLoop struct {
	kernel         string
	launch         func(g *gpu)
	instructions   float64
	global, shared int     // bytes
	bankTurns      float64 // that conflicts of banks of shared memory cost
}

// product returns the launch of a product of 128 outputs and 768 columns.
func product(kind kernels.Type, format kernels.WeightFormat, rows int) func(g *gpu) {
	return func(g *gpu) {
		m := newMatrix(g, kind, format, 128, 768)
		m.multiply(g, newWorkspace(g), random(kind, 5, rows*m.Columns), one)
	}
}

// decoding and prefilling return the launch of attention of a sequence of 256 tokens, with four heads that share a key head.
func decoding(cache kernels.CacheType, headSize int) func(g *gpu) { return attend(cache, headSize, 1) }
func prefilling(cache kernels.CacheType, headSize int) func(g *gpu) {
	return attend(cache, headSize, 100)
}

func attend(cache kernels.CacheType, headSize, queries int) func(g *gpu) {
	return func(g *gpu) {
		p := problem{AttentionShape: shapeFP8(cache, kernels.F16, headSize, 4, 1, 16), lens: []int{256}, queries: []int{queries}}
		p.run(g, p.numbers(), one)
	}
}

// Ensure that main loops do not become longer. In all of them, mma finds its operands in registers in a row, no access
// leaves a part of a sector of global memory, and only heads of 80 elements, whose rows have 10 of 12 units of 16 bytes,
// meet in banks of shared memory. The loop of decoding has the first loads of a partition in it.
func TestMainLoops(t *testing.T) {
	const f16, fp8 = kernels.CacheAuto, kernels.CacheE4M3
	for _, c := range level.First(1, []mainLoop{
		{"product_plain_f16_many", product(kernels.F16, kernels.Plain, 256), 2.1, 43, 171, 0},
		{"product_plain_bf16_many", product(kernels.BF16, kernels.Plain, 256), 2.1, 43, 171, 0},
		{"product_plain_f16", product(kernels.F16, kernels.Plain, 32), 6.3, 128, 512, 0},
		{"product_q8_0_f16", product(kernels.F16, kernels.Q8_0, 32), 16.1, 50, 386, 0},
		{"product_q4_0_f16", product(kernels.F16, kernels.Q4_0, 32), 15.2, 12, 316, 0},
		{"product_mxfp4_f16", product(kernels.F16, kernels.MXFP4, 32), 21.5, 11, 308, 0},
		{"product_q4_k_f16", product(kernels.F16, kernels.Q4_K, 32), 18.7, 12, 324, 0},
		{"product_q5_k_f16", product(kernels.F16, kernels.Q5_K, 32), 25.2, 27, 347, 0},
		{"product_q6_k_f16", product(kernels.F16, kernels.Q6_K, 32), 23.2, 29, 353, 0},
		{"paged_attention_decode_f16_64", decoding(f16, 64), 14.1, 243, 512, 0},
		{"paged_attention_decode_f16_80", decoding(f16, 80), 13.2, 246, 519, 1.34},
		{"paged_attention_decode_f16_96", decoding(f16, 96), 12.5, 248, 523, 0},
		{"paged_attention_decode_f16_128", decoding(f16, 128), 12.2, 250, 528, 0},
		{"paged_attention_decode_f16_256", decoding(f16, 256), 11.3, 253, 536, 0},
		{"paged_attention_decode_fp8_64", decoding(fp8, 64), 29.3, 123, 753, 0},
		{"paged_attention_decode_fp8_80", decoding(fp8, 80), 37.4, 124, 762, 1.34},
		{"paged_attention_decode_fp8_96", decoding(fp8, 96), 34.7, 125, 768, 0},
		{"paged_attention_decode_fp8_128", decoding(fp8, 128), 27.6, 126, 776, 0},
		{"paged_attention_decode_fp8_256", decoding(fp8, 256), 30.6, 127, 788, 0},
		{"paged_attention_prefill_f16_64", prefilling(f16, 64), 6.3, 19, 174, 0},
		{"paged_attention_prefill_f16_80", prefilling(f16, 80), 5.6, 19, 175, 0.19},
		{"paged_attention_prefill_f16_96", prefilling(f16, 96), 5.1, 18, 175, 0},
		{"paged_attention_prefill_f16_128", prefilling(f16, 128), 4.5, 18, 176, 0},
		{"paged_attention_prefill_f16_256", prefilling(f16, 256), 5.4, 58, 348, 0},
		{"paged_attention_prefill_fp8_64", prefilling(fp8, 64), 8.3, 11, 195, 0},
		{"paged_attention_prefill_fp8_80", prefilling(fp8, 80), 8, 10, 196, 0.2},
		{"paged_attention_prefill_fp8_96", prefilling(fp8, 96), 7.3, 10, 197, 0},
		{"paged_attention_prefill_fp8_128", prefilling(fp8, 128), 6.3, 10, 198, 0},
		{"paged_attention_prefill_fp8_256", prefilling(fp8, 256), 11.5, 30, 424, 0},
	}) {
		t.Run(c.kernel, func(t *testing.T) {
			g := newGPU(t)
			interpreter := g.Interpret(t)
			c.launch(g)
			k := interpreter.Kernel(c.kernel)
			require.NotNil(t, k, "the launch has no such kernel")
			l := k.MainLoop()
			require.Positive(t, l.MMA)
			n := float64(l.MMA)
			t.Logf("for each mma %.2f instructions, %.1f and %.1f bytes, %.2f turns", float64(l.Instructions)/n, float64(l.GlobalBytes)/n, float64(l.SharedBytes)/n, float64(l.ExcessBankTurns)/n)
			require.Zero(t, l.Moves, "moves before mma")
			require.Zero(t, l.ExcessSectors, "sectors of global memory")
			require.LessOrEqual(t, float64(l.Instructions)/n, c.instructions, "instructions a mma")
			require.LessOrEqual(t, float64(l.GlobalBytes)/n, float64(c.global), "bytes of global memory a mma")
			require.LessOrEqual(t, float64(l.SharedBytes)/n, float64(c.shared), "bytes of shared memory a mma")
			require.LessOrEqual(t, float64(l.ExcessBankTurns)/n, c.bankTurns, "turns of banks a mma")
		})
	}
}

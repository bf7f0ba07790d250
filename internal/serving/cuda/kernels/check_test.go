package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

type launchable interface {
	Launch(*kernels.Set, *cuda.Stream) error
}

// Ensure that Launch returns an error if a kernel would access memory outside its operands. Such an access makes the
// context unusable. No value of a field may cause a panic.
func TestLaunchRefusesOperandsThatWouldBreakTheContext(t *testing.T) {
	g := newGPU(t)
	const p = cuda.Pointer(4096)
	shape := shape(kernels.F16, 64, 2, 1, 16)
	plan, err := shape.Plan(g.context.Device(), []int32{0, 1}, []int32{300}, 0)
	require.NoError(t, err)
	attend := kernels.PagedAttention{AttentionShape: shape, Plan: plan, Out: p, Query: p, Keys: p, Values: p, Tables: p, SeqLens: p, QueryStart: p, Entries: p, Parts: p}
	w := kernels.Weights{Outputs: 16, Columns: 1024, Packed: p}
	products, err := w.Plan(g.context.Device(), 1)
	require.NoError(t, err)
	multiply := kernels.Product{Weights: w, Out: p, In: p, Rows: 1, Plan: products, Parts: p}
	write := kernels.ReshapeAndCache{Tokens: 1, KeyHeads: 1, HeadSize: 8, BlockSize: 16, KeyCache: p, ValueCache: p, Key: p, Value: p, Slots: p}
	unparted, mislaid, capped := attend, attend, attend
	unparted.Parts, mislaid.Sinks, capped.SoftCap = 0, 2, 1e5
	for _, c := range []struct {
		launch launchable
		says   string
	}{
		{kernels.RMSNorm{Tokens: 1, N: 8, Out: p, In: p}, "rms_norm: Weight is 0: it must be an address"},
		{kernels.RMSNorm{Tokens: 1, N: 8, Out: p + 2, In: p, Weight: p}, "rms_norm: Out is 0x1002: the address must be a multiple of 16"},
		{kernels.RMSNorm{Tokens: 1, N: 8, Out: p, In: p, Weight: p, Residual: 8}, "rms_norm: Residual is 0x8: the address must be a multiple of 16"},
		{kernels.RMSNorm{Tokens: 1, N: 16, Stride: 8}, "rms_norm with 8 elements from a token to the next: the number must be 0, or a multiple of 8 and at least 16"},
		{kernels.RMSNorm{Tokens: 1, N: 8, Stride: -8}, "rms_norm with -8 elements from a token to the next: the number must be 0, or a multiple of 8 and at least 8"},
		{kernels.RMSNorm{Tokens: -1, N: 8}, "rms_norm of -1 tokens: there may be 0 to 2147483647"},
		{kernels.RMSNorm{Tokens: 1, N: 1 << 33}, "rms_norm of rows of 8589934592 elements: the length must be a multiple of 8"},
		{kernels.RMSNorm{Type: 7, Tokens: 1, N: 8}, "rms_norm of elements of type 7: there are kernels for F16 and BF16"},
		{kernels.LayerNorm{Rows: 1, N: 8, Out: p, In: p, Weight: p}, "layer_norm: Bias is 0: it must be an address"},
		{kernels.LayerNorm{Rows: math.MaxInt32 + 1, N: 8}, "layer_norm of 2147483648 rows: there may be 0 to 2147483647"},
		{kernels.Activation{Type: -1, Function: kernels.ReLU, Rows: 1, N: 8}, "relu of elements of type -1: there are kernels for F16 and BF16"},
		{kernels.Activation{Function: kernels.ReLU, Rows: 1, N: 8, Out: p}, "relu: In is 0: it must be an address"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: write}, "fused_qk_norm_rope_and_cache of 0 heads of 8 elements: there must be heads, of at most 256 elements"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: write, Heads: 2, QueryStride: 8}, "fused_qk_norm_rope_and_cache with 8 elements from a token to the next: the number must be 0, or a multiple of 8 and at least 16"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: write, Heads: 2}, "fused_qk_norm_rope_and_cache: Query is 0: it must be an address"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: write, Heads: 2, Query: p, KeyNorm: 8}, "fused_qk_norm_rope_and_cache: KeyNorm is 0x8: the address must be a multiple of 16"},
		{kernels.QKNormRopeAndCache{ReshapeAndCache: write, Heads: 2, Query: p, Table: p, Rotated: 8}, "fused_qk_norm_rope_and_cache: Positions is 0: it must be an address"},
		{kernels.Embedding{Rows: 1, N: 8, Out: p, Table: p, Tokens: p, PositionTable: p}, "embedding: Positions is 0: it must be an address"},
		{kernels.Embedding{Rows: 1, N: 8, Out: p, Table: p, Tokens: p + 2}, "embedding: Tokens is 0x1002: the address must be a multiple of 4"},
		{kernels.Sample{Rows: 1, N: 8, Tokens: p, Logits: p}, "sample: Values is 0: it must be an address"},
		{kernels.Sample{Rows: -2, N: 8}, "sample of -2 rows: there may be 0 to 2147483647"},
		{kernels.ReshapeAndCache{Tokens: 1, KeyHeads: 2, HeadSize: 8, BlockSize: 16, KeyStride: 8}, "reshape_and_cache with 8 elements from a token to the next: the number must be 0, or a multiple of 8 and at least 16"},
		{kernels.ReshapeAndCache{Tokens: 1, KeyHeads: 2, HeadSize: 8, BlockSize: 16, KeyCache: p, ValueCache: p, Key: p, Value: p, Slots: p + 4}, "reshape_and_cache: Slots is 0x1004: the address must be a multiple of 8"},
		{kernels.ReshapeAndCache{Cache: -1, Tokens: 1, KeyHeads: 2, HeadSize: 8, BlockSize: 16}, "reshape_and_cache with keys and values of type -1: there are kernels for CacheAuto, CacheE4M3 and CacheE5M2"},
		{kernels.ReshapeAndCache{Type: 2, Cache: kernels.CacheE4M3, Tokens: 1, KeyHeads: 2, HeadSize: 8, BlockSize: 16}, "reshape_and_cache of elements of type 2: there are kernels for F16 and BF16"},
		{kernels.CopyBlocks{Blocks: kernels.Blocks{Count: 1, BlockBytes: 16, Arrays: p}, Pairs: 1}, "copy_blocks: Mapping is 0: it must be an address"},
		{kernels.CopyBlocks{Blocks: kernels.Blocks{Count: 1, BlockBytes: 16}, Pairs: -1}, "copy_blocks of -1 pairs: there may be 0 to 2147483647"},
		{kernels.SwapBlocks{Blocks: kernels.Blocks{Count: 1, BlockBytes: 16, Arrays: p}, Pairs: 1, Mapping: p}, "swap_blocks: Host is 0: it must be an address"},
		{kernels.PackWeights{Weights: kernels.Weights{Format: 99, Outputs: 1, Columns: 8}}, "weights of the format 99: there are kernels for 0 (plain) to 6 (q6_k)"},
		{kernels.PackWeights{Weights: kernels.Weights{Type: 9, Outputs: 1, Columns: 8}}, "weights for rows of elements of type 9: there are kernels for F16 and BF16"},
		{kernels.PackWeights{Weights: kernels.Weights{Outputs: 1, Columns: 8, Packed: p}, Rows: p + 8}, "pack_weights: Rows is 0x1008: the address must be a multiple of 16"},
		{multiply, "a product: Arrived is 0: it must be an address"},
		{unparted, "attention: Parts is 0: it must be an address"},
		{mislaid, "attention: Sinks is 0x2: the address must be a multiple of 4"},
		{capped, "attention with a soft cap of 100000: it must be at least 0, which means none, and at most 1000"},
	} {
		require.EqualError(t, c.launch.Launch(g.set, g.stream), c.says)
	}
	_, err = shape.Plan(g.context.Device(), []int32{0}, nil, -3)
	require.EqualError(t, err, "attention with a window of -3 tokens: it must be at least 0, which means all")
	_, err = w.Plan(g.context.Device(), -1)
	require.EqualError(t, err, "a product of -1 rows: there may be 0 to 2147483647")
	require.Zero(t, kernels.Weights{Format: -1}.PackedBytes())
	require.Equal(t, "WeightFormat(99) Type(7)", fmt.Sprint(kernels.WeightFormat(99), kernels.Type(7)))
	require.Equal(t, "CacheType(9) e5m2", fmt.Sprint(kernels.CacheType(9), kernels.CacheE5M2))
}

// Ensure that a stride of 0 means tokens without gaps.
func TestStridesOf0AreThoseOfTokensWithoutGaps(t *testing.T) {
	g := newGPU(t)
	input, table := random(kernels.F16, 1, 3*2*8), floats(random(kernels.F16, 2, 3*8)...)
	var results [][]byte
	for _, stride := range []int{0, 2 * 8} {
		x, keys, values := g.encoded(kernels.F16, input), g.empty(2*16*2*8), g.empty(2*16*2*8)
		require.NoError(t, kernels.QKNormRopeAndCache{ReshapeAndCache: kernels.ReshapeAndCache{KeyCache: keys.Pointer(), ValueCache: values.Pointer(), Key: x.Pointer(), Value: x.Pointer(),
			Slots: g.bytes(words(3, 0, 1, 0, 2, 0)).Pointer(), Tokens: 3, KeyHeads: 2, HeadSize: 8, BlockSize: 16, KeyStride: stride, ValueStride: stride},
			Query: x.Pointer(), Positions: g.bytes(words(0, 1, 2)).Pointer(), Table: g.bytes(table).Pointer(), Heads: 2, Rotated: 8, QueryStride: stride}.Launch(g.set, g.stream))
		require.NoError(t, kernels.ReshapeAndCache{KeyCache: keys.Pointer(), ValueCache: values.Pointer(), Key: x.Pointer(), Value: x.Pointer(),
			Slots: g.bytes(words(3, 0, 1, 0, 2, 0)).Pointer(), Tokens: 3, KeyHeads: 2, HeadSize: 8, BlockSize: 16, KeyStride: stride, ValueStride: stride}.Launch(g.set, g.stream))
		results = append(results, append(g.read(keys), g.read(values)...))
	}
	require.Equal(t, results[1], results[0])
}

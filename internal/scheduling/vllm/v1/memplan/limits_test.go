package memplan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/testkit/rapidtest"
)

func TestBlocksThatWouldBeTooLargeAreRefused(t *testing.T) {
	paged := func(blockSize, page int) Layer {
		return Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: blockSize}, Page: page}
	}
	for _, tc := range []struct {
		name    string
		layers  []Layer
		wantErr bool
	}{
		{"small beside a wide window", []Layer{
			{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: 16}, KVHeads: 1, HeadSize: 1, ElementBytes: 1},
			{Group: kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 16, Window: 8}, KVHeads: 1 << 14, HeadSize: 1 << 14, ElementBytes: 16},
		}, true},
		{"a byte beside a state", []Layer{mamba(1 << 44), paged(1<<16, 1)}, true},
		{"one token too many", []Layer{mamba(2), paged(maxBlockSize/2+1, 1)}, true},
		{"as large as may be", []Layer{mamba(2), paged(maxBlockSize/2, 1)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := makeOne(tc.layers, 1<<62, Options{Blocks: 4})
			if tc.wantErr {
				require.ErrorIs(t, err, ErrLayers)
				require.ErrorContains(t, err, "more than 65536 tokens")
				return
			}
			require.NoError(t, err)
			for _, g := range plan.Groups {
				require.LessOrEqual(t, g.BlockSize, maxBlockSize)
			}
		})
	}
}

// anyLayer has numbers at and near the limits of llm_cache.h.
func anyLayer(t *rapid.T) Layer {
	draw := func(name string, values ...int) int { return rapid.SampledFrom(values).Draw(t, name) }
	l := Layer{
		Group:   kvcache.Group{Kind: kvcache.Kind(draw("kind", 0, 0, 1, 2, 3)), BlockSize: draw("block", 1, 16, 1024, 65521, 65535, 65536), Eagle: draw("eagle", 0, 0, 1) == 1},
		KVHeads: draw("heads", 1, 8, 1<<14), HeadSize: draw("head", 1, 64, 1<<14), ElementBytes: draw("element", 1, 2, 16),
		KeysOnly: rapid.Bool().Draw(t, "keys only"), Strided: rapid.Bool().Draw(t, "strided"), Page: draw("page", 0, 0, 1, 3, 1<<44-1, 1<<44),
	}
	switch l.Kind {
	case kvcache.Full:
		l.Hidden = draw("hidden", 0, 0, 1) == 1 && l.Page == 0 && !l.Eagle
	case kvcache.SlidingWindow:
		l.Window, l.Retained = draw("window", 1, 4096, math.MaxInt32), draw("retained", 0, 1, math.MaxInt32)
	case kvcache.ChunkedLocal:
		l.Chunk = draw("chunk", 1, 8192, math.MaxInt32)
	case kvcache.Mamba:
		l.Page, l.StateBytes = 0, draw("state", 1, 4096, 1<<44)
		l.NumSpeculativeBlocks, l.Align = draw("speculative", 0, 1, 1<<16), rapid.Bool().Draw(t, "align")
	}
	return l
}

func TestAPlanHasSoundNumbers(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		layers := rapid.SliceOfN(rapid.Custom(anyLayer), 1, 6).Draw(t, "layers")
		if rapid.Bool().Draw(t, "many") { // the sum over all is large
			for len(layers) < 4096 {
				layers = append(layers, layers[len(layers)-1])
			}
		}
		bytes := rapid.SampledFrom([]int{0, 1 << 20, 1 << 40, math.MaxInt}).Draw(t, "bytes")
		plan, err := makeOne(layers, bytes, Options{
			Blocks:      rapid.SampledFrom([]int{0, 0, 2, 1 << 24}).Draw(t, "blocks"),
			CrossLayers: rapid.Bool().Draw(t, "cross layers"), FullAllocation: rapid.Bool().Draw(t, "full"),
		})
		if err != nil {
			require.ErrorIs(t, err, ErrLayers)
			return
		}
		for _, g := range plan.Groups {
			require.NoError(t, g.Check())
			require.LessOrEqual(t, g.BlockSize, maxBlockSize)
			require.NotEmpty(t, g.Layers)
		}
		sum := 0
		for _, tensor := range plan.Tensors {
			require.NotEmpty(t, tensor.Layers)
			require.GreaterOrEqual(t, tensor.Bytes, 0)
			require.LessOrEqual(t, tensor.Offset, max(tensor.Stride-1, 0))
			if sum += tensor.Bytes; tensor.Stride > 0 {
				sum = tensor.Bytes // all are views of one
			}
			require.GreaterOrEqual(t, sum, 0)
		}
		if plan.NumGPUBlocks > 0 {
			require.Positive(t, plan.bytesPerBlock())
		}
		require.GreaterOrEqual(t, plan.BytesFor(1<<24, 1<<30), 0)
		most := rapid.SampledFrom([]int{1, 2, 1000, 1 << 24}).Draw(t, "most")
		longest, err := plan.LongestModelLen(most, rapid.SampledFrom([]int{1, 1 << 30}).Draw(t, "in flight"), 1)
		if err != nil {
			require.ErrorIs(t, err, ErrLayers)
			return
		}
		require.LessOrEqual(t, longest, most)
	})
}

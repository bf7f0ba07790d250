package kvstore_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
)

// Ensure that a state in a block is what was written there, also after copies, swaps and transfers, with each type of
// keys and values.
func TestStatesMoveWithTheirBlocks(t *testing.T) {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	defer pool.Close()
	for _, dtype := range []attention.DType{attention.F32, attention.F16, attention.BF16, attention.E4M3, attention.E5M2, attention.Int8} {
		t.Run(dtype.String(), func(t *testing.T) {
			shape := attention.Shape{BlockSize: 5, NumKVHeads: 3, HeadSize: 8, DType: dtype}
			s, err := kvstore.New(kvstore.Config{Shape: shape, Layers: 2, NumBlocks: 6, HostBlocks: 3}, pool)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			rnd := rand.New(rand.NewPCG(1, 2))
			var want [2][]float32
			for layer := range want {
				state := s.State(layer, 2)
				require.Len(t, state, shape.BlockBytes()/4)
				for i := range state {
					state[i] = rnd.Float32()
				}
				want[layer] = slices.Clone(state)
			}
			requireAt := func(block int32) {
				for layer := range want {
					require.Equal(t, want[layer], s.State(layer, block), "layer %d, block %d", layer, block)
				}
			}
			require.NoError(t, s.CopyBlocks([]kvstore.Pair{{Src: 2, Dst: 4}}))
			requireAt(4)
			require.NoError(t, s.SwapOut([]kvstore.Pair{{Src: 4, Dst: 1}}))
			require.NoError(t, s.SwapIn([]kvstore.Pair{{Src: 1, Dst: 5}}))
			requireAt(5)
			c := s.Config()
			data := make([]byte, c.BlockBytes())
			s.ReadBlock(5, data)
			s.WriteBlock(3, data)
			requireAt(3)
			requireAt(2)
		})
	}
}

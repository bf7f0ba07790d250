package kvstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

// Ensure that tokens written through a view are in the blocks with these numbers, and that a view is refused if its
// blocks have other sizes.
func TestAViewHasTheBlocksOfItsLayer(t *testing.T) {
	shape := attention.Shape{BlockSize: 8, NumKVHeads: 1, HeadSize: 32, DType: attention.F16}
	s := newStore(t, kvstore.Config{Shape: shape, Layers: 3, NumBlocks: 4})
	other := attention.Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 8, DType: attention.F16}
	view, err := s.View(1, other)
	require.NoError(t, err)
	tokens, keys, values := randomTokens(rand.New(rand.NewPCG(1, 2)), other, []int64{32, 47, -1, 33})
	empty := make([]byte, shape.BlockBytes())
	require.NoError(t, s.WriteView(&view, tokens))
	for i, slot := range map[int]int{0: 32, 1: 47, 3: 33} {
		for head := range 2 {
			for e := range 8 {
				require.InDelta(t, keys[i*16+head*8+e], stored(&view, false, slot, head, e), tolerance(attention.F16))
				require.InDelta(t, values[i*16+head*8+e], stored(&view, true, slot, head, e), tolerance(attention.F16))
			}
		}
	}
	block := make([]byte, 3*len(empty))
	for i := range int32(4) {
		s.ReadBlock(i, block)
		require.Equal(t, empty, block[:len(empty)])
		require.Equal(t, i != 2, string(empty) == string(block[len(empty):2*len(empty)]), "block %d", i)
		require.Equal(t, empty, block[2*len(empty):])
	}
	for _, wrong := range []attention.Shape{
		{BlockSize: 8, NumKVHeads: 2, HeadSize: 32, DType: attention.F16}, {BlockSize: 8, NumKVHeads: 1, HeadSize: 24, DType: attention.F16},
	} {
		_, err := s.View(1, wrong)
		require.ErrorIs(t, err, attention.ErrArgument)
		require.ErrorContains(t, err, "instead of 1024")
	}
	for _, layer := range []int{-1, 3} {
		_, err := s.View(layer, other)
		require.ErrorContains(t, err, "of 3, with blocks")
	}
}

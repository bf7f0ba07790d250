package kvstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

func TestAPoisonedBlockIsNaNAndItsNeighboursAreNot(t *testing.T) {
	forEachShape(t, func(t *testing.T, shape attention.Shape) {
		s := newStore(t, kvstore.Config{Shape: shape, Layers: 2, NumBlocks: 3})
		slots := make([]int64, 3*shape.BlockSize)
		for i := range slots {
			slots[i] = int64(i)
		}
		for layer := range 2 {
			tokens, _, _ := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, slots)
			require.NoError(t, s.Write(layer, tokens))
		}
		s.Poison([]int32{1, -1, 3})
		for layer := range 2 {
			for slot := range slots {
				poisoned := invariants.Enabled && slot/shape.BlockSize == 1
				for _, value := range []bool{false, true} {
					x := stored(s.Layer(layer), value, slot, 2, 63)
					require.Equal(t, poisoned, x != x, "layer %d, slot %d", layer, slot)
				}
			}
		}
	})
}

package kvstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

// Ensure that a store of latent keys has only the keys, and that every way to move a block moves them.
func TestLatentKeysAreWrittenAndMoved(t *testing.T) {
	for _, dtype := range []attention.DType{attention.F32, attention.F16, attention.E4M3} {
		t.Run(dtype.String(), func(t *testing.T) {
			shape := attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 40, Latent: 32, Layout: attention.LayoutFlash, DType: dtype}
			s := newStore(t, kvstore.Config{Shape: shape, Layers: 2, NumBlocks: 4, HostBlocks: 2})
			config := s.Config()
			require.Equal(t, 2*16*40*dtype.Size(), config.BlockBytes())
			tokens, keys, _ := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, []int64{16, 31, -1, 17})
			tokens.Value = attention.Tensor{}
			require.NoError(t, s.Write(1, tokens))
			check := func(block int64) {
				t.Helper()
				for i, offset := range map[int]int64{0: 0, 1: 15, 3: 1} {
					for e := range 40 {
						require.InDelta(t, keys[i*40+e], stored(s.Layer(1), false, int(block*16+offset), 0, e), tolerance(dtype))
					}
				}
			}
			check(1)
			require.NoError(t, s.CopyBlocks([]kvstore.Pair{{Src: 1, Dst: 3}}))
			check(3)
			require.NoError(t, s.SwapOut([]kvstore.Pair{{Src: 3, Dst: 1}}))
			require.NoError(t, s.SwapIn([]kvstore.Pair{{Src: 1, Dst: 0}}))
			check(0)
			data := make([]byte, config.BlockBytes())
			s.ReadBlock(0, data)
			s.WriteBlock(2, data)
			check(2)
		})
	}
}

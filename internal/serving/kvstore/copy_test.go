package kvstore_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

func bits(r *rand.Rand, d attention.DType, rows, width, stride int) attention.Tensor {
	data := make([]byte, (rows*stride+width)*d.Size()+8)
	for i := 0; i+8 <= len(data); i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64())
	}
	return attention.Tensor{DType: d, Data: data, Stride: stride}
}

// Ensure that numbers of the cache's type are stored bit for bit. A whole tile is written at once. A tile with a slot
// of -1 is written token by token.
func TestNumbersOfTheSameTypeAreStoredBitForBit(t *testing.T) {
	const n, heads, size = 1100, 8, 128
	const width = heads * size
	r := rand.New(rand.NewPCG(7, 7))
	slots := make([]int64, n)
	for i := range slots {
		slots[i] = int64(i + 16)
	}
	slots[40] = -1
	for _, d := range []attention.DType{attention.F32, attention.F16, attention.BF16} {
		for _, layout := range allLayouts {
			t.Run(d.String()+" "+layout.String(), func(t *testing.T) {
				shape := attention.Shape{BlockSize: 16, NumKVHeads: heads, HeadSize: size, DType: d, Layout: layout}
				all := kvstore.Tokens{Key: bits(r, d, n, width, width+24), Value: bits(r, d, n, width, width+8), Slots: slots}
				store := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 70})
				require.NoError(t, store.Write(0, &all))
				c := store.Layer(0)
				for token := 0; token < n; token += 7 {
					block, offset := int(slots[token])/16, int(slots[token])%16
					for i := range width {
						index := c.KeyOffset(block, i/size, offset, i%size)
						requireElement(t, &all.Key, token, i, c.Key[index:])
						index = c.ValueOffset(block, i/size, offset, i%size)
						requireElement(t, &all.Value, token, i, c.Value[index:])
					}
				}
			})
		}
	}
}

func requireElement(t *testing.T, x *attention.Tensor, row, element int, stored []byte) {
	size := x.DType.Size()
	if start := (row*x.Stride + element) * size; string(x.Data[start:start+size]) != string(stored[:size]) {
		require.Equal(t, x.Data[start:start+size], stored[:size], "token %d, element %d", row, element)
	}
}

package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
)

func newPool(t testing.TB, size int) *parallel.Pool {
	pool, err := parallel.New(size)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newStore(t testing.TB, c kvstore.Config) *kvstore.Store {
	s, err := kvstore.New(c, newPool(t, 2))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

var allDTypes = []attention.DType{attention.F32, attention.F16, attention.BF16, attention.E4M3, attention.E5M2,
	attention.Int8}
var allLayouts = []attention.Layout{attention.LayoutTile, attention.LayoutVLLM, attention.LayoutFlash}

func forEachShape(t *testing.T, test func(t *testing.T, s attention.Shape)) {
	for _, dtype := range allDTypes {
		for _, layout := range allLayouts {
			for _, block := range []int{8, 16, 32} {
				t.Run(fmt.Sprintf("%v %v %d", dtype, layout, block), func(t *testing.T) {
					test(t, attention.Shape{BlockSize: block, NumKVHeads: 3, HeadSize: 64, DType: dtype, Layout: layout})
				})
			}
		}
	}
}

// stored returns an element of a key or value as a float32. It multiplies the stored number by the scale if the
// type is Int8.
func stored(c *attention.Cache, value bool, slot, head, i int) float32 {
	block, offset := slot/c.BlockSize, slot%c.BlockSize
	if value {
		x := c.DType.Load(unsafe.Pointer(&c.Value[c.ValueOffset(block, head, offset, i)]))
		if c.DType == attention.Int8 {
			x *= c.Scales(c.ValueScales, block, head)[offset]
		}
		return x
	}
	x := c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, offset, i)]))
	if c.DType == attention.Int8 {
		x *= c.Scales(c.KeyScales, block, head)[offset]
	}
	return x
}

func randomTokens(r *rand.Rand, s attention.Shape, slots []int64) (*kvstore.Tokens, []float32, []float32) {
	width := s.NumKVHeads * s.HeadSize
	k, v := make([]float32, len(slots)*width), make([]float32, len(slots)*width)
	for i := range k {
		k[i], v[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	return &kvstore.Tokens{Key: attention.Float32s(k, width), Value: attention.Float32s(v, width), Slots: slots}, k, v
}

// tolerance returns by how much a number below 5 can change when it is stored.
func tolerance(d attention.DType) float64 {
	return map[attention.DType]float64{attention.F32: 0, attention.F16: 2e-3, attention.BF16: 2e-2,
		attention.E4M3: 0.25, attention.E5M2: 0.5, attention.Int8: 0.02}[d]
}

func TestWhatIsWrittenIsThere(t *testing.T) {
	forEachShape(t, func(t *testing.T, shape attention.Shape) {
		s := newStore(t, kvstore.Config{Shape: shape, Layers: 2, NumBlocks: 5})
		r := rand.New(rand.NewPCG(1, 2))
		slots := []int64{7, 8, 9, -1, 3, int64(5*shape.BlockSize - 1), 0}
		tokens, k, v := randomTokens(r, shape, slots)
		require.NoError(t, s.Write(1, tokens))
		c := s.Layer(1)
		for i, slot := range slots {
			for h := range shape.NumKVHeads {
				for j := range shape.HeadSize {
					if slot < 0 {
						continue
					}
					index := (i*shape.NumKVHeads+h)*shape.HeadSize + j
					require.InDelta(t, k[index], stored(c, false, int(slot), h, j), tolerance(shape.DType))
					require.InDelta(t, v[index], stored(c, true, int(slot), h, j), tolerance(shape.DType))
				}
			}
		}
		for slot := range 5 * shape.BlockSize {
			require.Zero(t, stored(s.Layer(0), false, slot, 1, 5))
			if slot == 10 {
				require.Zero(t, stored(c, false, slot, 1, 5))
				require.Zero(t, stored(c, true, slot, 1, 5))
			}
		}
	})
}

func TestBytesHoldWholeBlocksOfAllLayers(t *testing.T) {
	c := kvstore.Config{Shape: attention.Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 64}, Layers: 3}
	require.Equal(t, 3*2*16*2*64*4, c.BlockBytes())
	for bytes, want := range map[int]int{0: 0, -1: 0, c.BlockBytes() - 1: 0, c.BlockBytes(): 1, 5 * c.BlockBytes(): 5,
		5*c.BlockBytes() - 1: 4} {
		require.Equal(t, want, c.BlocksIn(int64(bytes)), "%d bytes", bytes)
	}
}

func TestCopiesAndSwapsMoveWholeBlocksInAllLayers(t *testing.T) {
	forEachShape(t, func(t *testing.T, shape attention.Shape) {
		s := newStore(t, kvstore.Config{Shape: shape, Layers: 3, NumBlocks: 6, HostBlocks: 4})
		r := rand.New(rand.NewPCG(1, 2))
		all := make([]int64, 2*shape.BlockSize)
		for i := range all {
			all[i] = int64(i) // blocks 0 and 1
		}
		for layer := range 3 {
			tokens, _, _ := randomTokens(r, shape, all)
			require.NoError(t, s.Write(layer, tokens))
		}
		require.NoError(t, s.CopyBlocks([]kvstore.Pair{{Src: 0, Dst: 3}, {Src: 1, Dst: 0}, {Src: 0, Dst: 4}}))
		requireSameBlock(t, s, 1, 0)
		requireSameBlock(t, s, 1, 4)
		require.NoError(t, s.SwapOut([]kvstore.Pair{{Src: 3, Dst: 2}}))
		require.NoError(t, s.SwapIn([]kvstore.Pair{{Src: 2, Dst: 5}}))
		requireSameBlock(t, s, 3, 5)
		require.NotEqual(t, stored(s.Layer(2), false, 3*shape.BlockSize, 1, 1), stored(s.Layer(2), false, shape.BlockSize, 1,
			1))
		require.Zero(t, stored(s.Layer(0), true, 2*shape.BlockSize, 0, 0))
	})
}

func requireSameBlock(t *testing.T, s *kvstore.Store, a, b int) {
	t.Helper()
	shape := s.Config().Shape
	for layer := range s.Config().Layers {
		c := s.Layer(layer)
		for i := range shape.BlockSize * shape.NumKVHeads * shape.HeadSize {
			offset, h, j := i/shape.HeadSize/shape.NumKVHeads, i/shape.HeadSize%shape.NumKVHeads, i%shape.HeadSize
			x, y := a*shape.BlockSize+offset, b*shape.BlockSize+offset
			if stored(c, false, x, h, j) != stored(c, false, y, h, j) || stored(c, true, x, h, j) != stored(c, true, y, h, j) {
				require.Failf(t, "blocks differ", "%d and %d in layer %d, offset %d, head %d, element %d", a, b, layer, offset,
					h, j)
			}
		}
	}
}

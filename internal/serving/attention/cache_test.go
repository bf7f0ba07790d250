package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func requireError(t *testing.T, err, target error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, target)
	require.ErrorContains(t, err, want)
}

// In these caches of 3 blocks and 2 heads, the scales of a head take 64 bytes. The strides, and where the scales of
// values begin, are in bytes.
func TestScalesThatShareMemoryAreRefused(t *testing.T) {
	for _, c := range []struct {
		name                string
		block, head, values int
		wantErr             string
	}{
		{"values after all keys", 128, 64, 384, ""},
		{"values after each head", 256, 128, 64, ""},
		{"the same place", 128, 64, 0, "scales of keys and of values share memory"},
		{"values in the keys of the next head", 256, 128, 124, "scales of keys and of values share memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			scales := aligned(1024)
			cache := Cache{
				Shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 32, DType: Int8}, NumBlocks: 3,
				BlockStride: 1024, HeadStride: 512, Key: aligned(3072), Value: aligned(3072),
				ScaleBlockStride: c.block, ScaleHeadStride: c.head, KeyScales: scales, ValueScales: scales[c.values:],
			}
			require.NoError(t, cache.Check())
			require.NoError(t, cache.CheckStrides())
			err := cache.CheckApart()
			requireError(t, err, ErrOverlap, c.wantErr)
		})
	}
}

// In these caches of 3 blocks and 2 heads, the keys of a head in a block take 2,048 bytes, and so do its values.
func TestBlocksThatShareMemoryAreRefused(t *testing.T) {
	const span = 16 * 32 * 4
	for _, c := range []struct {
		name                string
		layout              Layout
		block, head, values int // strides, and where values begin, in bytes
		wantErr             string
	}{
		{"heads in blocks, values after each head", LayoutTile, 4 * span, 2 * span, span, ""},
		{"heads in blocks, values after all keys", LayoutVLLM, 2 * span, span, 6 * span, ""},
		{"blocks in heads", LayoutVLLM, span, 3 * span, 6 * span, ""},
		{"values after each block", LayoutVLLM, 4 * span, span, 2 * span, ""},
		{"rows of heads side by side, values after each block", LayoutFlash, 4 * span, 128, 2 * span, ""},
		{"no block stride", LayoutVLLM, 0, span, 6 * span, "blocks or heads overlap"},
		{"no head stride", LayoutVLLM, 2 * span, 0, 6 * span, "blocks or heads overlap"},
		{"blocks shorter than their heads", LayoutVLLM, span + 4, span, 6 * span, "blocks or heads overlap"},
		{"heads shorter than a row", LayoutFlash, 2 * span, 64, 6 * span, "blocks or heads overlap"},
		{"rows beyond those of the next token", LayoutFlash, 4 * span, 192, 8 * span, "blocks or heads overlap"},
		{"the same place", LayoutVLLM, 2 * span, span, 0, "share memory"},
		{"values in the keys of the same head", LayoutVLLM, 4 * span, span, 64, "share memory"},
		{"values in the keys of the next head", LayoutVLLM, 8 * span, 2 * span, 2*span + 64, "share memory"},
		{"values in the keys of the next block", LayoutVLLM, 8 * span, 2 * span, 8*span - 64, "share memory"},
		{"values of the first head in the keys of the last block", LayoutFlash, 2 * span, 128, 6*span - 4, "share memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := aligned(30 * span)
			cache := Cache{
				Shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 32, DType: F32, Layout: c.layout}, NumBlocks: 3,
				BlockStride: c.block, HeadStride: c.head, Key: memory, Value: memory[c.values:],
			}
			require.NoError(t, cache.Check())
			err := cache.CheckStrides()
			if err == nil {
				err = cache.CheckApart()
			}
			requireError(t, err, ErrArgument, c.wantErr)
		})
	}
}

func TestScalesMustBeFiniteAndHaveAnInverse(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name  string
		scale float32
		ok    bool
	}{
		{"none", 0, true}, {"2", 2, true}, {"the smallest", 0x1p-127, true}, {"negative", -0x1p100, true},
		{"NaN", float32(math.NaN()), false}, {"infinite", -inf, false}, {"without an inverse", 0x1p-128, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, err := range []error{CheckScales(c.scale, 1), CheckScales(1, c.scale)} {
				if c.ok {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ErrArgument)
			}
		})
	}
}

// Ensure that CheckApart accepts no cache with two elements at one address. With LayoutFlash, CheckApart treats the
// heads of a block as one piece, so it may refuse caches without overlaps.
func TestCheckedCachesHaveNoElementTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(44, 1))
	passed, refused := 0, 0
	for range 3000 {
		memory := aligned(4096)
		c := Cache{
			Shape: Shape{BlockSize: 1 + r.IntN(3), NumKVHeads: 1 + r.IntN(3), HeadSize: 16, DType: E4M3,
				Layout: allLayouts[r.IntN(3)]},
			NumBlocks: 1 + r.IntN(4), BlockStride: 8 * r.IntN(40), HeadStride: 8 * r.IntN(40),
			Key: memory[1024:], Value: memory[1024+8*(r.IntN(160)-80):],
		}
		if c.Check() != nil || c.CheckStrides() != nil {
			continue
		}
		places, elements := c.places()
		if err := c.CheckApart(); err == nil {
			passed++
			require.Equal(t, elements, places, "%+v", c.Shape)
		} else if c.Layout != LayoutFlash {
			refused++
			require.Less(t, places, elements, "%+v", c.Shape)
		}
	}
	require.Positive(t, passed)
	require.Positive(t, refused)
}

func (c *Cache) places() (places, elements int) {
	found := map[*byte]bool{}
	n := c.NumBlocks * c.NumKVHeads * c.BlockSize * c.HeadSize
	for i := range n {
		b, h := i/(c.NumKVHeads*c.BlockSize*c.HeadSize), i/(c.BlockSize*c.HeadSize)%c.NumKVHeads
		token, e := i/c.HeadSize%c.BlockSize, i%c.HeadSize
		found[&c.Key[c.KeyOffset(b, h, token, e)]] = true
		found[&c.Value[c.ValueOffset(b, h, token, e)]] = true
	}
	return len(found), 2 * n
}

// Ensure that the last block may end exactly at the end of its memory. With -gcflags=all=-d=checkptr, a pointer past
// the end stops this test.
func TestTheLastBlockIsTheEndOfItsMemory(t *testing.T) {
	for _, dtype := range allDTypes {
		for _, layout := range allLayouts {
			s := Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 48, DType: dtype, Layout: layout}
			p := newProblem(rand.New(rand.NewPCG(42, 1)), problemSpec{shape: s, heads: 1, lens: []int{16}, queries: []int{2}})
			cache, err := NewCache(s, make([]byte, p.cache.NumBlocks*s.BlockBytes()))
			require.NoError(t, err)
			require.NoError(t, Convert(&cache, &p.cache))
			p.cache = cache
			require.NoError(t, newRunner(t, 1).Forward(&p.cache, &p.batch))
			requireNear(t, p, f32Bound)
		}
	}
}

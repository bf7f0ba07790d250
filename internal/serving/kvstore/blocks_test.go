package kvstore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
)

// spaced returns a cache of random numbers. The gaps between its blocks are filled with 255.
func spaced(r *rand.Rand, s attention.Shape, blocks, gap int) (c attention.Cache, memory []byte) {
	memory = make([]byte, blocks*(s.BlockBytes()+2*gap))
	c, err := attention.NewCache(s, memory)
	if err != nil {
		panic(err)
	}
	c.NumBlocks = blocks
	if s.Layout == attention.LayoutTile {
		c.BlockStride += gap
		if s.DType == attention.Int8 {
			c.ScaleBlockStride += gap
		}
	} else {
		c.BlockStride += gap
		n := blocks * c.BlockStride
		c.Key, c.Value = memory[:n], memory[n:2*n]
		if s.DType == attention.Int8 {
			scales := make([]byte, 2*blocks*c.ScaleBlockStride)
			c.KeyScales, c.ValueScales = scales[:len(scales)/2], scales[len(scales)/2:]
		}
	}
	for i := range memory {
		memory[i] = 255
	}
	for block := range blocks {
		for head := range s.NumKVHeads {
			for token := range s.BlockSize {
				for i := range s.HeadSize {
					c.DType.Store(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, token, i)]), float32(r.IntN(100)))
					c.DType.Store(unsafe.Pointer(&c.Value[c.ValueOffset(block, head, token, i)]), float32(r.IntN(100)))
				}
				if s.DType == attention.Int8 {
					c.Scales(c.KeyScales, block, head)[token] = r.Float32()
					c.Scales(c.ValueScales, block, head)[token] = r.Float32()
				}
			}
		}
	}
	return c, memory
}

func clearBlocks(c *attention.Cache) {
	for block := range c.NumBlocks {
		for head := range c.NumKVHeads {
			for i := range c.BlockSize * c.HeadSize {
				token, element := i/c.HeadSize, i%c.HeadSize
				c.DType.Store(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, token, element)]), 0)
				c.DType.Store(unsafe.Pointer(&c.Value[c.ValueOffset(block, head, token, element)]), 0)
			}
			if c.DType == attention.Int8 {
				clear(c.Scales(c.KeyScales, block, head))
				clear(c.Scales(c.ValueScales, block, head))
			}
		}
	}
}

func blockOf(c *attention.Cache, block int) []float32 {
	var all []float32
	for head := range c.NumKVHeads {
		for token := range c.BlockSize {
			for i := range c.HeadSize {
				all = append(all, c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, token, i)])),
					c.DType.Load(unsafe.Pointer(&c.Value[c.ValueOffset(block, head, token, i)])))
			}
			if c.DType == attention.Int8 {
				all = append(all, c.Scales(c.KeyScales, block, head)[token], c.Scales(c.ValueScales, block, head)[token])
			}
		}
	}
	return all
}

func TestBlocksAreCopiedBetweenCachesWithStridesOfTheirOwn(t *testing.T) {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	defer pool.Close()
	copier := kvstore.NewCopier(pool)
	for _, layout := range []attention.Layout{attention.LayoutTile, attention.LayoutVLLM, attention.LayoutFlash} {
		for _, dtype := range []attention.DType{attention.F32, attention.BF16, attention.Int8} {
			t.Run(fmt.Sprintf("%v %v", layout, dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(31, uint64(dtype)))
				s := attention.Shape{BlockSize: 8, NumKVHeads: 3, HeadSize: 16, DType: dtype, Layout: layout}
				device, memory := spaced(r, s, 5, 64)
				host, _ := spaced(r, s, 3, 128)
				first, second, kept := blockOf(&device, 0), blockOf(&device, 4), blockOf(&device, 2)
				// A later pair sees what an earlier one has written.
				require.NoError(t, copier.Copy(&device, &device, []kvstore.Pair{{Src: 0, Dst: 1}, {Src: 1, Dst: 3},
					{Src: 4, Dst: 1}}))
				require.Equal(t, first, blockOf(&device, 3))
				require.Equal(t, second, blockOf(&device, 1))
				require.NoError(t, copier.Copy(&host, &device, []kvstore.Pair{{Src: 3, Dst: 2}}))
				require.Equal(t, first, blockOf(&host, 2))
				require.NoError(t, copier.Copy(&device, &host, []kvstore.Pair{{Src: 2, Dst: 4}}))
				require.Equal(t, first, blockOf(&device, 4))
				require.Equal(t, kept, blockOf(&device, 2))
				other, untouched := spaced(r, s, 5, 64)
				clearBlocks(&device)
				clearBlocks(&other)
				require.Equal(t, untouched, memory, "gaps")
			})
		}
	}
}

func TestCopiesBetweenCachesThatDoNotFitAreRefused(t *testing.T) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	defer pool.Close()
	s := attention.Shape{BlockSize: 8, NumKVHeads: 2, HeadSize: 16}
	for _, c := range []struct {
		name   string
		change func(cache *attention.Cache, pairs []kvstore.Pair)
		want   string
	}{
		{"a source outside", func(_ *attention.Cache, p []kvstore.Pair) { p[1].Src = 4 },
			"pair 1 copies block 4, where there are 4"},
		{"a negative destination", func(_ *attention.Cache, p []kvstore.Pair) { p[1].Dst = -1 }, "to block -1"},
		{"another type", func(dst *attention.Cache, _ []kvstore.Pair) { dst.DType = attention.F16 }, "same type"},
		{"another scale", func(dst *attention.Cache, _ []kvstore.Pair) { dst.KeyScale = 2 }, "and scales"},
		{"another scale of values", func(dst *attention.Cache, _ []kvstore.Pair) { dst.ValueScale = 2 }, "and scales"},
		{"the same memory with another stride", func(dst *attention.Cache, _ []kvstore.Pair) {
			dst.BlockStride /= 2
			dst.NumBlocks = 2
			dst.HeadStride /= 2
			dst.NumKVHeads = 2
		}, "share memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, memory := spaced(rand.New(rand.NewPCG(32, 1)), s, 4, 0)
			dst, pairs := src, []kvstore.Pair{{Src: 0, Dst: 1}, {Src: 0, Dst: 2}}
			c.change(&dst, pairs)
			before := bytes.Clone(memory)
			err := kvstore.NewCopier(pool).Copy(&dst, &src, pairs)
			require.ErrorIs(t, err, attention.ErrArgument)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, before, memory)
		})
	}
}

// A scale of 0 means 1, and Int8 ignores both.
func TestBlocksAreCopiedBetweenCachesWhoseScalesMeanTheSame(t *testing.T) {
	for _, c := range []struct {
		dtype              attention.DType
		dstScale, srcScale float32
	}{{attention.E4M3, 0, 1}, {attention.E4M3, 1, 0}, {attention.Int8, 2, 3}} {
		s := attention.Shape{BlockSize: 8, NumKVHeads: 2, HeadSize: 16, DType: c.dtype}
		r := rand.New(rand.NewPCG(33, 1))
		src, _ := spaced(r, s, 4, 0)
		dst, _ := spaced(r, s, 4, 0)
		src.KeyScale, dst.KeyScale, src.ValueScale, dst.ValueScale = c.srcScale, c.dstScale, c.srcScale, c.dstScale
		require.NoError(t, kvstore.NewCopier(newPool(t, 1)).Copy(&dst, &src, []kvstore.Pair{{Src: 1, Dst: 2}}))
		require.Equal(t, blockOf(&src, 1), blockOf(&dst, 2))
	}
}

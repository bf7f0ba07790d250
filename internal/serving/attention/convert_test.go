package attention

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The same numbers in another layout give the same bits, and convert back to the same memory.
func TestLayoutsHoldTheSameNumbers(t *testing.T) {
	for _, dtype := range allDTypes {
		for _, block := range []int{8, 16, 24, 32} {
			t.Run(fmt.Sprintf("%v %d", dtype, block), func(t *testing.T) {
				r := rand.New(rand.NewPCG(15, 1))
				p := newProblem(r, problemSpec{
					shape: Shape{BlockSize: block, NumKVHeads: 2, HeadSize: 48, DType: dtype}, heads: 6, lens: []int{70, 600},
					queries: []int{4, 1},
				})
				runner := newRunner(t, 2)
				want := outputs(t, runner, p, nil)
				first := p.cache
				for _, layout := range []Layout{LayoutVLLM, LayoutFlash, LayoutTile} {
					s := first.Shape
					s.Layout = layout
					c, err := NewCache(s, aligned(s.BlockBytes()*first.NumBlocks))
					require.NoError(t, err)
					require.NoError(t, Convert(&c, &p.cache))
					p.cache = c
					requireSameBits(t, want, outputs(t, runner, p, nil), layout.String())
				}
				require.Equal(t, first.Key, p.cache.Key)
			})
		}
	}
}

func TestConvertingRoundsAndRefuses(t *testing.T) {
	s := Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F32}
	from, err := NewCache(s, aligned(s.BlockBytes()))
	require.NoError(t, err)
	from.DType.Store(unsafe.Pointer(&from.Key[from.KeyOffset(0, 0, 3, 7)]), 1.0003)
	s.DType, s.Layout = F16, LayoutFlash
	to, err := NewCache(s, aligned(s.BlockBytes()))
	require.NoError(t, err)
	require.NoError(t, Convert(&to, &from))
	require.Equal(t, float32(1), to.DType.Load(unsafe.Pointer(&to.Key[to.KeyOffset(0, 0, 3, 7)])))
	other := s
	other.HeadSize = 64
	wrong, err := NewCache(other, aligned(other.BlockBytes()))
	require.NoError(t, err)
	require.ErrorIs(t, Convert(&wrong, &from), ErrArgument)
	other = s
	other.DType = Int8
	wrong, err = NewCache(other, aligned(other.BlockBytes()))
	require.NoError(t, err)
	require.ErrorIs(t, Convert(&wrong, &from), ErrArgument)
	require.ErrorIs(t, Convert(&from, &from), ErrOverlap)
	moved := to
	moved.Key, moved.Value = to.Value, aligned(len(to.Value))
	require.ErrorIs(t, Convert(&moved, &to), ErrOverlap, "keys are written where values are read")
}

func TestConvertingToTheSameTypeKeepsAllBits(t *testing.T) {
	for _, dtype := range allDTypes {
		t.Run(dtype.String(), func(t *testing.T) {
			s := Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 48, DType: dtype}
			from, err := NewCache(s, aligned(s.BlockBytes()))
			require.NoError(t, err)
			all := [][]byte{from.Key, from.Value, from.KeyScales, from.ValueScales}
			for _, b := range all {
				for i := range b {
					b[i] = byte(i ^ i>>8) // -128 and NaN are among them
				}
			}
			want := [][]byte{}
			for _, b := range all {
				want = append(want, bytes.Clone(b))
			}
			for _, layout := range []Layout{LayoutVLLM, LayoutFlash} {
				s.Layout = layout
				to, err := NewCache(s, aligned(s.BlockBytes()))
				require.NoError(t, err)
				require.NoError(t, Convert(&to, &from))
				for _, b := range all {
					clear(b)
				}
				require.NoError(t, Convert(&from, &to))
				for i, b := range all {
					require.True(t, bytes.Equal(want[i], b), "%v, part %d", layout, i)
				}
			}
		})
	}
}

func TestConvertingInt8IgnoresTheScalesOfAllNumbers(t *testing.T) {
	p := smallProblem(Int8)
	s := p.cache.Shape
	s.Layout = LayoutFlash
	to, err := NewCache(s, aligned(s.BlockBytes()*p.cache.NumBlocks))
	require.NoError(t, err)
	p.cache.KeyScale, to.ValueScale = 2, 2
	require.NoError(t, Convert(&to, &p.cache))
	runner := newRunner(t, 1)
	want := outputs(t, runner, p, nil)
	p.cache = to
	requireSameBits(t, want, outputs(t, runner, p, nil), "converted")
}

// The formulas, written again with the indices of vLLM and FlashAttention.
func TestLayoutsAreWhatTheySay(t *testing.T) {
	s := Shape{BlockSize: 16, NumKVHeads: 3, HeadSize: 32, DType: F16}
	for _, c := range []struct {
		layout     Layout
		key, value func(b, h, t, i int) int // elements after the first key and the first value
	}{
		{LayoutVLLM, func(b, h, t, i int) int { return (((b*3+h)*4+i/8)*16+t)*8 + i%8 },
			func(b, h, t, i int) int { return ((b*3+h)*32+i)*16 + t }},
		{LayoutFlash, func(b, h, t, i int) int { return ((b*16+t)*3+h)*32 + i },
			func(b, h, t, i int) int { return ((b*16+t)*3+h)*32 + i }},
		{LayoutTile, func(b, h, t, i int) int { return (b*3+h)*1024 + i*16 + t },
			func(b, h, t, i int) int { return (b*3+h)*1024 + t*32 + i }},
	} {
		s.Layout = c.layout
		cache, err := NewCache(s, aligned(5*s.BlockBytes()))
		require.NoError(t, err)
		for at := range 5 * 3 * 16 * 32 {
			b, h, token, i := at/(3*16*32), at/(16*32)%3, at/32%16, at%32
			require.Equal(t, 2*c.key(b, h, token, i), cache.KeyOffset(b, h, token, i), "%v", c.layout)
			require.Equal(t, 2*c.value(b, h, token, i), cache.ValueOffset(b, h, token, i), "%v", c.layout)
		}
	}
}

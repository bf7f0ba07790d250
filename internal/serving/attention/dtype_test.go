package attention

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// narrowTypes maps floating-point types narrower than float32 to their smallest encoding of infinity or NaN. float32
// represents the numbers of these types exactly.
var narrowTypes = map[DType]int{F16: 0x7c00, BF16: 0x7f80, E4M3: 0x7f, E5M2: 0x7c}

// fromBits returns the number with the given encoding. toBits returns the encoding of a number, as Store writes it.
func (d DType) fromBits(bits int) float32 { return d.Load(unsafe.Pointer(&bits)) }

func (d DType) toBits(x float32) (bits int) {
	d.Store(unsafe.Pointer(&bits), x)
	return bits
}

func TestNarrowNumbersSurviveFloat32(t *testing.T) {
	for d := range narrowTypes {
		for i := range 1 << (8 * d.Size()) {
			switch v := d.fromBits(i); {
			case v != v:
				restored := d.fromBits(d.toBits(v))
				require.True(t, restored != restored, "%v %#x", d, i)
			case d == E5M2 && math.IsInf(float64(v), 0):
				require.Equal(t, i-1, d.toBits(v), "it saturates")
			case i != d.toBits(v):
				require.Equal(t, i, d.toBits(v), "%v %v", d, v)
			}
		}
	}
}

func TestNumbersAreRoundedToNearest(t *testing.T) {
	for d, n := range narrowTypes {
		for i := range n - 1 {
			low, high := float64(d.fromBits(i)), float64(d.fromBits(i+1))
			middle := (low + high) / 2
			if float64(float32(middle)) != middle {
				continue // float32 cannot represent the middle exactly
			}
			below, above := math.Nextafter32(float32(middle), 0), math.Nextafter32(float32(middle), math.MaxFloat32)
			got := [3]int{d.toBits(below), d.toBits(float32(middle)), d.toBits(above)}
			if want := [3]int{i, i + i&1, i + 1}; got != want {
				require.Equal(t, want, got, "%v between %v and %v", d, low, high)
			}
		}
	}
}

func TestNumbersOf8BitsSaturate(t *testing.T) {
	for d, largest := range map[DType]float32{E4M3: 448, E5M2: 57344, Int8: 127} {
		for _, factor := range []float32{1, 1.01, 1.035, 1.04, 1.07, 1.08, 1.13, 2, 1e30, float32(math.Inf(1))} {
			for _, sign := range []float32{1, -1} {
				var bits uint8
				d.Store(unsafe.Pointer(&bits), sign*factor*largest)
				require.Equal(t, sign*largest, d.Load(unsafe.Pointer(&bits)), "%v of %v", d, sign*factor*largest)
			}
		}
	}
}

func TestAssemblyConvertsLikeGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, 100_000)
	for i := range x {
		x[i] = math.Float32frombits(r.Uint32())
		if i%2 == 0 {
			x[i] = float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(40)-30)))
		}
	}
	x[0], x[1], x[2] = float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())
	for _, k := range instructionSets() {
		for _, d := range []DType{F16, BF16} {
			out := make([]uint16, len(x))
			n := k.narrow(d, unsafe.Pointer(&out[0]), x)
			for i := range n {
				var want uint16
				d.Store(unsafe.Pointer(&want), x[i])
				if want != out[i] {
					require.Equal(t, want, out[i], "%v %v of %#x", k, d, math.Float32bits(x[i]))
				}
			}
		}
		for _, d := range []DType{F16, BF16, E5M2, Int8} {
			input := make([]uint16, 1<<16)
			for i := range input {
				input[i] = uint16(i)
			}
			out := make([]float32, 1<<16)
			n := k.widen(d, out, unsafe.Pointer(&input[0]))
			for i := range n {
				want := d.Load(unsafe.Add(unsafe.Pointer(&input[0]), i*d.Size()))
				if math.Float32bits(want) != math.Float32bits(out[i]) {
					require.Failf(t, "other bits", "%v %v, number %d is %v, not %v", k, d, i, out[i], want)
				}
			}
		}
	}
}

func TestTilesAreTransposedAndRowsCopied(t *testing.T) {
	input := make([]uint16, 40*300)
	for i := range input {
		input[i] = uint16(i * 7)
	}
	for _, k := range instructionSets() {
		for _, size := range []int{8, 72, 128} {
			for _, bypass := range []bool{false, true} {
				padded := make([]uint32, 16*size+8)
				skip := int(-uintptr(unsafe.Pointer(&padded[0]))&31) / 4
				out := padded[skip:][:16*size]
				short := unsafe.Slice((*uint16)(unsafe.Pointer(&out[0])), 16*size)
				long := unsafe.Slice((*uint32)(unsafe.Pointer(&input[0])), len(input)/2)
				const stride = 280 // numbers of 16 bits
				k.transpose(unsafe.Pointer(&short[0]), unsafe.Pointer(&input[0]), 2*stride, size, 2, bypass)
				for i := range short {
					require.Equal(t, input[i%16*stride+i/16], short[i], "%v, heads of %d, bypass %v: element %d", k, size, bypass, i)
				}
				k.transpose(unsafe.Pointer(&out[0]), unsafe.Pointer(&input[0]), 2*stride, size, 4, bypass)
				for i := range out {
					require.Equal(t, long[i%16*stride/2+i/16], out[i], "%v, heads of %d, bypass %v: element %d", k, size, bypass, i)
				}
				k.copyRows(unsafe.Pointer(&short[0]), unsafe.Pointer(&input[0]), 2*stride, 16, 2*size, bypass)
				for i := range short {
					require.Equal(t, input[i/size*stride+i%size], short[i], "%v, heads of %d, bypass %v: element %d", k, size,
						bypass, i)
				}
			}
		}
	}
}

// Ensure that all layouts give outputs with the same bits. A conversion to another layout and back must restore the
// memory.
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
				original := p.cache
				for _, layout := range []Layout{LayoutVLLM, LayoutFlash, LayoutTile} {
					s := original.Shape
					s.Layout = layout
					c, err := NewCache(s, aligned(s.BlockBytes()*original.NumBlocks))
					require.NoError(t, err)
					require.NoError(t, Convert(&c, &p.cache))
					p.cache = c
					requireSameBits(t, want, outputs(t, runner, p, nil), layout.String())
				}
				require.Equal(t, original.Key, p.cache.Key)
			})
		}
	}
}

func TestConvertingRoundsAndRefuses(t *testing.T) {
	s := Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F32}
	source, err := NewCache(s, aligned(s.BlockBytes()))
	require.NoError(t, err)
	source.DType.Store(unsafe.Pointer(&source.Key[source.KeyOffset(0, 0, 3, 7)]), 1.0003)
	s.DType, s.Layout = F16, LayoutFlash
	target, err := NewCache(s, aligned(s.BlockBytes()))
	require.NoError(t, err)
	require.NoError(t, Convert(&target, &source))
	require.Equal(t, float32(1), target.DType.Load(unsafe.Pointer(&target.Key[target.KeyOffset(0, 0, 3, 7)])))
	other := s
	other.HeadSize = 64
	refused, err := NewCache(other, aligned(other.BlockBytes()))
	require.NoError(t, err)
	require.ErrorIs(t, Convert(&refused, &source), ErrArgument)
	other = s
	other.DType = Int8
	refused, err = NewCache(other, aligned(other.BlockBytes()))
	require.NoError(t, err)
	require.ErrorIs(t, Convert(&refused, &source), ErrArgument)
	require.ErrorIs(t, Convert(&source, &source), ErrOverlap)
	moved := target
	moved.Key, moved.Value = target.Value, aligned(len(target.Value))
	require.ErrorIs(t, Convert(&moved, &target), ErrOverlap, "keys are written where values are read")
}

func TestConvertingToTheSameTypeKeepsAllBits(t *testing.T) {
	for _, dtype := range allDTypes {
		t.Run(dtype.String(), func(t *testing.T) {
			s := Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 48, DType: dtype}
			source, err := NewCache(s, aligned(s.BlockBytes()))
			require.NoError(t, err)
			all := [][]byte{source.Key, source.Value, source.KeyScales, source.ValueScales}
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
				target, err := NewCache(s, aligned(s.BlockBytes()))
				require.NoError(t, err)
				require.NoError(t, Convert(&target, &source))
				for _, b := range all {
					clear(b)
				}
				require.NoError(t, Convert(&source, &target))
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
	target, err := NewCache(s, aligned(s.BlockBytes()*p.cache.NumBlocks))
	require.NoError(t, err)
	p.cache.KeyScale, target.ValueScale = 2, 2
	require.NoError(t, Convert(&target, &p.cache))
	runner := newRunner(t, 1)
	want := outputs(t, runner, p, nil)
	p.cache = target
	requireSameBits(t, want, outputs(t, runner, p, nil), "converted")
}

// Ensure that KeyOffset and ValueOffset use the index order of each layout. The wanted offsets follow from the shapes
// that the comments of the layouts give.
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
		for index := range 5 * 3 * 16 * 32 {
			b, h, token, i := index/(3*16*32), index/(16*32)%3, index/32%16, index%32
			require.Equal(t, 2*c.key(b, h, token, i), cache.KeyOffset(b, h, token, i), "%v", c.layout)
			require.Equal(t, 2*c.value(b, h, token, i), cache.ValueOffset(b, h, token, i), "%v", c.layout)
		}
	}
}

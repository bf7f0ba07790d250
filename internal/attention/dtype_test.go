package attention

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/half"
)

// Every number of 8 or 16 bits becomes itself again after float32, and NaN stays NaN.
func TestNarrowNumbersSurviveFloat32(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		n     int
		load  func(i int) float32
		store func(v float32) int
	}{
		{F16, 1 << 16, func(i int) float32 { return half.FromF16(uint16(i)) },
			func(v float32) int { return int(half.ToF16(v)) }},
		{BF16, 1 << 16, func(i int) float32 { return half.FromBF16(uint16(i)) },
			func(v float32) int { return int(half.ToBF16(v)) }},
		{E4M3, 256, func(i int) float32 { return e4m3ToF32(uint8(i)) }, func(v float32) int { return int(f32ToE4M3(v)) }},
		{E5M2, 256, func(i int) float32 { return e5m2ToF32(uint8(i)) }, func(v float32) int { return int(f32ToE5M2(v)) }},
	} {
		for i := range c.n {
			v := c.load(i)
			switch {
			case v != v:
				back := c.load(c.store(v))
				require.True(t, back != back, "%v %#x", c.dtype, i)
			case c.dtype == E5M2 && math.IsInf(float64(v), 0):
				require.Equal(t, i-1, c.store(v), "it saturates")
			default:
				require.Equal(t, i, c.store(v), "%v %v", c.dtype, v)
			}
		}
	}
}

// A number between two neighbours becomes the nearer one, or the even one if both are equally near.
func TestNumbersAreRoundedToNearest(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		n     int
		load  func(i int) float32
		store func(v float32) int
	}{
		{F16, 0x7c00, func(i int) float32 { return half.FromF16(uint16(i)) },
			func(v float32) int { return int(half.ToF16(v)) }},
		{BF16, 0x7f80, func(i int) float32 { return half.FromBF16(uint16(i)) },
			func(v float32) int { return int(half.ToBF16(v)) }},
		{E4M3, 0x7f, func(i int) float32 { return e4m3ToF32(uint8(i)) }, func(v float32) int { return int(f32ToE4M3(v)) }},
		{E5M2, 0x7c, func(i int) float32 { return e5m2ToF32(uint8(i)) }, func(v float32) int { return int(f32ToE5M2(v)) }},
	} {
		for i := range c.n - 1 {
			low, high := float64(c.load(i)), float64(c.load(i+1))
			middle := (low + high) / 2
			if float64(float32(middle)) != middle {
				continue // a denormal float32 in between
			}
			require.Equal(t, i+i&1, c.store(float32(middle)), "%v between %v and %v", c.dtype, low, high)
			require.Equal(t, i, c.store(math.Nextafter32(float32(middle), 0)), "%v below the middle of %v", c.dtype, low)
			require.Equal(t, i+1, c.store(math.Nextafter32(float32(middle), math.MaxFloat32)), "%v above the middle of %v",
				c.dtype, low)
		}
	}
}

// What is above the largest number of 8 bits becomes the largest one, and no NaN or infinity.
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

// Assembly converts like Go, bit for bit, for numbers of all kinds.
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
			in := make([]uint16, 1<<16)
			for i := range in {
				in[i] = uint16(i)
			}
			out := make([]float32, 1<<16)
			n := k.widen(d, out, unsafe.Pointer(&in[0]))
			for i := range n {
				want := d.Load(unsafe.Add(unsafe.Pointer(&in[0]), i*d.Size()))
				if math.Float32bits(want) != math.Float32bits(out[i]) {
					require.Failf(t, "other bits", "%v %v, number %d is %v, not %v", k, d, i, out[i], want)
				}
			}
		}
	}
}

func TestTilesAreTransposedAndRowsCopied(t *testing.T) {
	in := make([]uint16, 40*300)
	for i := range in {
		in[i] = uint16(i * 7)
	}
	for _, k := range instructionSets() {
		for _, size := range []int{8, 72, 128} {
			for _, past := range []bool{false, true} {
				room := make([]uint32, 16*size+8)
				skip := int(-uintptr(unsafe.Pointer(&room[0]))&31) / 4
				out := room[skip:][:16*size]
				short := unsafe.Slice((*uint16)(unsafe.Pointer(&out[0])), 16*size)
				long := unsafe.Slice((*uint32)(unsafe.Pointer(&in[0])), len(in)/2)
				const stride = 280 // numbers of 16 bits
				k.transpose(unsafe.Pointer(&short[0]), unsafe.Pointer(&in[0]), 2*stride, size, 2, past)
				for i := range short {
					require.Equal(t, in[i%16*stride+i/16], short[i], "%v, heads of %d, past %v: element %d", k, size, past, i)
				}
				k.transpose(unsafe.Pointer(&out[0]), unsafe.Pointer(&in[0]), 2*stride, size, 4, past)
				for i := range out {
					require.Equal(t, long[i%16*stride/2+i/16], out[i], "%v, heads of %d, past %v: element %d", k, size, past, i)
				}
				k.copyRows(unsafe.Pointer(&short[0]), unsafe.Pointer(&in[0]), 2*stride, 16, 2*size, past)
				for i := range short {
					require.Equal(t, in[i/size*stride+i%size], short[i], "%v, heads of %d, past %v: element %d", k, size, past, i)
				}
			}
		}
	}
}

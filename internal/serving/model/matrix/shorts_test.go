package matrix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
)

var shortShapes = []shape{{W16A16, 64, 2, 0}, {W16A16, 130, 300, 0}, {W16A16, 100, 640, 0}}

// extremes is a source of numbers of all magnitudes, including denormal numbers, infinities and NaN. The finite
// numbers are so small that no product overflows.
type extremes struct{ seed uint64 }

func (e extremes) Row(i int, dst []float32) {
	rnd := rand.New(rand.NewPCG(e.seed, uint64(i)))
	for k := range dst {
		dst[k] = math.Float32frombits(rnd.Uint32())
		if e := math.Float32bits(dst[k]) >> 23 & 0xff; e > 180 {
			dst[k] = float32(rnd.NormFloat64())
		}
		switch n := rnd.IntN(4000); {
		case n == 0:
			dst[k] = float32(math.Inf(1 - rnd.IntN(2)*2))
		case n == 1:
			dst[k] = math.Float32frombits(0x7f800001 + rnd.Uint32N(0x7fffff) | rnd.Uint32()<<31)
		case n < 40:
			dst[k] = math.Float32frombits(rnd.Uint32N(1<<23) | rnd.Uint32()<<31)
		case n < 80:
			dst[k] = minShort * (1 + rnd.Float32()*0.1 - 0.05)
		}
	}
}

// inOrder returns the sum of the products of BF16 in the order of the inputs, with one rounding for each addition. A
// product has at most 16 bits, so it is exact in float64. If it is added to a float32 in float64, and the sum is
// rounded to float32, the result is the correctly rounded float32.
func inOrder(x, w []float32) float32 {
	sum := float32(0)
	for k := range x {
		sum = float32(float64(sum) + float64(half.FromBF16(short(x[k])))*float64(half.FromBF16(short(w[k]))))
	}
	return sum
}

// bitsOf returns the bits of the values. Every NaN is represented by the same bits.
func bitsOf(values []float32) []uint32 {
	bits := make([]uint32, len(values))
	for i, v := range values {
		if bits[i] = math.Float32bits(v); v != v {
			bits[i] = 0x7fc00000
		}
	}
	return bits
}

// Ensure that all instruction sets, and the portable code, give the same bits for any number of rows.
func TestShortProductsAreSumsInTheOrderOfK(t *testing.T) {
	for _, s := range shortShapes {
		for name, src := range map[string]Source{"normal": random{}, "extreme": extremes{1}, "extreme again": extremes{2}} {
			const maxRows = 50
			w, x, want := make([]float32, s.inputs), make([]float32, maxRows*s.inputs), make([]float32, maxRows*s.outputs)
			for r := range maxRows {
				src.Row(1000+r, x[r*s.inputs:][:s.inputs])
			}
			for i := range s.outputs {
				src.Row(i, w)
				for r := range maxRows {
					want[r*s.outputs+i] = inOrder(x[r*s.inputs:][:s.inputs], w)
				}
			}
			eachLevel(t, func(level string) {
				m := zeros(t, s.kind, s.outputs, s.inputs, s.block)
				require.NoError(t, m.Pack(src, 0, m.Panels()))
				for _, rows := range []int{1, 2, 4, 5, 12, 24, maxRows} {
					require.Equal(t, bitsOf(want[:rows*s.outputs]), bitsOf(product(m, x, rows)), "%s, %s, %d × %d, %d rows", level, name, s.outputs,
						s.inputs, rows)
				}
			})
		}
	}
}

func TestRowsOfShortsAreTheSourcesWeights(t *testing.T) {
	eachLevel(t, func(level string) {
		for _, s := range shortShapes {
			m, row, want := s.packed(t), make([]float32, s.inputs), make([]float32, s.inputs)
			for i := range s.outputs {
				m.Row(i, row)
				random{}.Row(i, want)
				for k, v := range want {
					want[k] = half.FromBF16(half.ToBF16(v))
				}
				require.Equal(t, want, row, level)
			}
		}
	})
}

func TestActivationsAreRoundedToTheNearestBF16(t *testing.T) {
	inf, nan, minimum := float32(math.Inf(1)), float32(math.NaN()), float32(minShort)
	tests := []struct{ x, want float32 }{
		{0, 0}, {1, 1}, {-3, -3},
		{1 + 1.0/256, 1}, {1 + 3.0/256, 1 + 4.0/256}, {1 + 1.0/256 + 1.0/(1<<20), 1 + 2.0/256}, {-1 - 1.0/256, -1},
		{minimum, minimum}, {-minimum, -minimum}, {math.Nextafter32(minimum, 0), 0}, {math.Nextafter32(-minimum, 0), 0},
		{math.SmallestNonzeroFloat32, 0}, {-1e-40, 0},
		{math.MaxFloat32, inf}, {inf, inf}, {-inf, -inf}, {nan, nan}, {math.Float32frombits(0xffffffff), nan},
		{math.Float32frombits(0x7f800001), nan},
	}
	eachLevel(t, func(level string) {
		for n := 1; n < 40; n++ { // what the kernels do, and the rest
			x, singles, both := make([]float32, 2*n), make([]float32, 2*n), make([]float32, n)
			for i := range x {
				x[i] = tests[i%len(tests)].x
			}
			roundShorts(singles, x)
			roundPairs(both, x)
			for i, have := range singles {
				test, short := tests[i%len(tests)], uint16(math.Float32bits(both[i/2])>>(16*(1-i%2)))
				description := fmt.Sprintf("%s: %v, of %d", level, test.x, n)
				require.Equal(t, bitsOf([]float32{test.want}), bitsOf([]float32{have}), description)
				require.Equal(t, bitsOf([]float32{test.want}), bitsOf([]float32{half.FromBF16(short)}), description)
			}
		}
	})
}

func TestSlicesOfShortProductsAddUp(t *testing.T) {
	eachLevel(t, func(level string) { requireSlicesAddUp(t, W16A16, 0, level) })
	_, err := new(Arena).New(W16A16, 64, 7, 0)
	require.ErrorIs(t, err, ErrShape, "half a pair")
	require.ErrorIs(t, zeros(t, W16A16, 64, 6, 0).Slice(2), ErrShape, "slices of 3 inputs")
}

func TestAnInputHasManyForms(t *testing.T) {
	eachLevel(t, func(level string) {
		const cols, rows = 64, 30
		x := activations(rows, cols)
		all := []*Matrix{packed(t, F16, 64, cols, 0), packed(t, W16A16, 64, cols, 0), packed(t, W8A8, 64, cols, 32)}
		var forms Form
		for _, m := range all {
			forms |= m.Form()
		}
		var together Input
		for call := range together.Set(x, rows, cols, forms) {
			together.Pack(call)
		}
		for _, m := range all {
			have := make([]float32, rows*64)
			m.Product(have, 64, &together, 0, 1, NewScratch())
			require.Equal(t, product(m, x, rows), have, "%s, %v", level, m.Type)
		}
	})
}

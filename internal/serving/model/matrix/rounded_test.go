package matrix

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

var dotShapes = []shape{
	{W8A8, 96, 320, 32}, {W8A8, 64, 32, 32}, {W8A8, 70, 544, 16}, {W4A8, 70, 288, 32}, {W4A8, 128, 800, 32},
	{W4A8Min, 129, 320, 32}, {W4A8Min, 64, 32, 32}, {W4A8Min, 70, 96, 16}, {W5A8, 70, 544, 32}, {W5A8Min, 129, 320, 32},
	{W6A8, 96, 320, 16}, {W6A8, 64, 64, 32}, {NL4A8, 70, 288, 32}, {FP4A8, 64, 320, 32},
}

// nearest rounds a row in blocks of 32 values, as the README.md of llmserve describes. The largest magnitude of a
// block, divided by 127, is the step of the block. nearest rounds each value to a whole multiple of the step. It
// returns these multiples, the rounded values, and the largest possible error of each value.
func nearest(x []float32) (q []int, values, errors []float64) {
	for b := 0; b < len(x); b += 32 {
		largest := float32(0)
		for _, v := range x[b : b+32] {
			largest = max(largest, float32(math.Abs(float64(v))))
		}
		scale, inverse := largest/127, 127/largest
		if largest < 1.0/(1<<100) {
			scale, inverse = 0, 0
		}
		for _, v := range x[b : b+32] {
			n := math.RoundToEven(float64(v * inverse))
			q, values = append(q, int(n)), append(values, n*float64(scale))
			errors = append(errors, float64(scale)*(0.5+1e-4)+1.0/(1<<100))
		}
	}
	return q, values, errors
}

// checkRounded requires that the products dst equal those of the rounded activations, computed in float64. The products
// must also be close to those of the exact activations. A rounded activation differs from the exact one by at most half
// a step.
func checkRounded(t testing.TB, m *Matrix, x, dst []float32, rows int) {
	w := make([]float32, m.In)
	rounded, distances := make([][]float64, rows), make([][]float64, rows)
	for r := range rows {
		_, rounded[r], distances[r] = nearest(x[r*m.In:][:m.In])
	}
	for i := range m.Out {
		m.Row(i, w)
		for r := range rows {
			distance := distances[r]
			sum, size, exact, bound := 0.0, 0.0, 0.0, 0.0
			for k, v := range rounded[r] {
				weight := float64(w[k])
				sum += v * weight
				exact += float64(x[r*m.In+k]) * weight
				bound += distance[k] * math.Abs(weight)
				// The kernels multiply the minimum of a block by the sum of the block's activations, which can cancel each other.
				// The bound of the error therefore grows with their magnitudes, not with their sum.
				size += (math.Abs(v) + distance[k]) * (math.Abs(weight) + 0.5)
			}
			have := float64(dst[r*m.Out+i])
			require.InDelta(t, sum, have, size*2e-6+1e-35, "row %d, output %d, rounded", r, i)
			require.InDelta(t, exact, have, bound+size*2e-6+1e-35, "row %d, output %d, as it is", r, i)
		}
	}
}

func TestProductIsThatOfTheRoundedActivations(t *testing.T) {
	eachLevel(t, func(name string) {
		for _, s := range dotShapes {
			t.Run(fmt.Sprintf("%s/%v/%dx%d", name, s.kind, s.outputs, s.inputs), func(t *testing.T) {
				m := s.packed(t)
				for _, rows := range []int{1, 7, 13} {
					x := activations(rows, s.inputs)
					clear(x[:32]) // a block of zeros
					for i := range x[:32] {
						x[len(x)-32+i] *= 1e-30
					}
					checkRounded(t, m, x, product(m, x, rows), rows)
				}
			})
		}
	})
}

func TestRoundedProductsHaveTheSameBitsWithEachInstructionSet(t *testing.T) {
	for i, s := range dotShapes {
		rows := []int{11, 50}[i%2]
		m, x := s.packed(t), activations(rows, s.inputs)
		if i%4 > 1 {
			require.NoError(t, m.Slice(Slices(s.inputs, m.Unit())))
		}
		var first []float32
		var firstInput *Input
		eachLevel(t, func(name string) {
			set, dst := input(x, rows, m), make([]float32, rows*s.outputs)
			m.Product(dst, s.outputs, set, 0, m.Panels(), NewScratch())
			if firstInput == nil {
				firstInput = set
			}
			require.Equal(t, firstInput.rounded, set.rounded, name)
			if !fuses() {
				return
			}
			if first == nil {
				first = dst
			}
			require.Equal(t, first, dst, "%s, %v", name, s.kind)
			require.Equal(t, dst[:s.outputs], product(m, x, 1), "%s, %v, one row", name, s.kind)
		})
	}
}

func TestActivationsAreRoundedToTheNearestStep(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	fill := func(values ...float32) []float32 { return append(values, make([]float32, 32-len(values))...) }
	tests := []struct {
		name  string
		x     []float32
		want  []int8
		scale float32
	}{
		{"ties to even", fill(127, 0.5, 1.5, -0.5, -2.5), []int8{127, 0, 2, 0, -2}, 1},
		{"the negative is the largest", fill(-254, 3, 100), []int8{-127, 2, 50}, 2},
		{"zeros", fill(), []int8{0}, 0},
		{"negative zeros", fill(float32(math.Copysign(0, -1))), []int8{0}, 0},
		{"denormals", fill(1e-40, -3e-45), []int8{0, 0}, 0},
		{"the smallest that counts", fill(1.0/(1<<100), -1.0/(1<<101)), []int8{127, -64}, float32(1.0/(1<<100)) / 127},
		{"below the smallest", fill(0.99 / (1 << 100)), []int8{0}, 0},
		{"the largest", fill(math.MaxFloat32, -math.MaxFloat32), []int8{127, -127}, float32(math.MaxFloat32) / 127},
		{"an infinity", fill(1, -inf), nil, nan},
		{"a NaN", fill(1, nan), nil, nan},
		{"a NaN and an infinity", fill(inf, nan), nil, nan},
	}
	eachLevel(t, func(level string) {
		for _, test := range tests {
			t.Run(level+"/"+test.name, func(t *testing.T) {
				var r rounded
				r.resize(1, 32)
				r.row(0, test.x)
				sum := [2]int32{}
				for i, q := range r.q[:32] {
					sum[i/16] -= int32(q)
				}
				for _, s := range []step{r.steps32[0], r.steps16[0], r.steps16[1]} {
					if test.scale != test.scale {
						require.True(t, s.scale != s.scale)
					} else {
						require.Equal(t, test.scale, s.scale)
					}
				}
				if test.scale != test.scale {
					return // the integers do not matter
				}
				require.Equal(t, sum[0]+sum[1], r.steps32[0].negSum)
				require.Equal(t, sum, [2]int32{r.steps16[0].negSum, r.steps16[1].negSum})
				require.Equal(t, test.want, r.q[:len(test.want)])
			})
		}
	})
}

func TestAnInfinityMakesItsRowNaNAndNoOther(t *testing.T) {
	eachLevel(t, func(name string) {
		for _, s := range dotShapes {
			m, x := s.packed(t), activations(3, s.inputs)
			x[s.inputs+5] = float32(math.Inf(1))
			for i, v := range product(m, x, 3) {
				require.Equal(t, i/s.outputs == 1, v != v, "%s, %v, value %d is %v", name, s.kind, i, v)
			}
		}
	})
}

type fixed struct{ q int8 }

func (fixed) Row(int, []float32) { panic("Row was called for a matrix of integers") }

func (f fixed) Quantized(_ int, q []int8, scales []Scale) {
	for k := range q {
		q[k] = f.q
	}
	for b := range scales {
		scales[b] = Scale{D: 1, Factor: 1}
	}
}

func TestExtremesDoNotOverflow(t *testing.T) {
	tests := []struct {
		kind   Type
		q      int8
		weight float64
	}{
		{W8A8, -128, -128}, {W8A8, 127, 127}, {W4A8, -8, -8}, {W4A8, 7, 7}, {W4A8Min, 15, 15}, {W5A8, -16, -16},
		{W5A8Min, 31, 31}, {W6A8, -32, -32}, {W6A8, 31, 31}, {NL4A8, 0, -127}, {FP4A8, 15, -12},
	}
	for _, test := range tests {
		for _, sign := range []float32{1, -1} {
			m := zeros(t, test.kind, 64, 64, 32)
			require.NoError(t, m.Pack(fixed{test.q}, 0, 1))
			x := make([]float32, 64)
			for i := range x {
				x[i] = 127 * sign
			}
			eachLevel(t, func(name string) {
				for _, v := range product(m, x, 1) {
					require.Equal(t, float32(64*127*test.weight)*sign, v, "%s, %v of %d", name, test.kind, test.q)
				}
			})
		}
	}
}

func TestRowsOfQuadsAreTheSourcesWeights(t *testing.T) {
	for _, s := range dotShapes {
		m, w := s.packed(t), make([]float32, s.inputs)
		low, high := s.kind.integers()
		src := quantized{inputs: s.inputs, block: s.block, low: low, high: high, minimum: s.kind.hasMinimum()}
		q, scales := make([]int8, s.inputs), make([]Scale, s.inputs/s.block)
		for i := range s.outputs {
			m.Row(i, w)
			src.Quantized(i, q, scales)
			for k, have := range w {
				scale, minimum := scales[k/s.block].values()
				f, l, v := half.FromF16(half.ToF16(scale)), half.FromF16(half.ToF16(minimum)), float32(q[k])
				if table := s.kind.Table(); table != nil {
					v = table[q[k]]
				}
				if want := fma(v, f, l); want != have {
					require.Equal(t, want, have, "%v, output %d, weight %d", s.kind, i, k)
				}
			}
		}
	}
}

func TestAMinimumOfAWholeMultipleIsAddedToTheIntegers(t *testing.T) {
	tests := []struct {
		kind      Type
		q, offset int8
	}{{W4A8, 0, 8}, {W4A8, 15, 8}, {W4A8, 7, 4}, {W5A8, 31, 16}, {W6A8, 3, 0}}
	for _, test := range tests {
		m, row := zeros(t, test.kind, 64, 32, 32), make([]float32, 32)
		for _, factor := range []int8{-3, 0, 5} {
			require.NoError(t, m.Pack(scaled{fixed{test.q}, Scale{D: 0.5, Factor: factor, Min: -0.5, MinFactor: test.offset * factor}}, 0, 1))
			m.Row(63, row)
			require.Equal(t, float32(test.q-test.offset)*0.5*float32(factor), row[31], "%v of %d", test.kind, test.q)
		}
	}
}

type scaled struct {
	fixed
	scale Scale
}

func (s scaled) Quantized(i int, q []int8, scales []Scale) {
	s.fixed.Quantized(i, q, scales)
	for b := range scales {
		scales[b] = s.scale
	}
}

// Ensure that products read 8-bit weights directly from the matrix and do not copy them to scratch memory.
func TestWeightsOfAByteAreReadWhereTheyAre(t *testing.T) {
	eachLevel(t, func(name string) {
		const rows, outputs, inputs = 50, 64, 320
		m, s := packed(t, W8A8, outputs, inputs, 32), NewScratch()
		m.Product(make([]float32, rows*outputs), outputs, input(activations(rows, inputs), rows, m), 0, 1, s)
		require.Empty(t, s.bytes, name)
	})
}

// requireSlicesAddUp requires that the sum of the products of two halves of the inputs equals the whole product, bit
// for bit.
func requireSlicesAddUp(t *testing.T, kind Type, block int, name string) {
	const inputs, outputs, rows = 1280, 64, 5 // the quarters are longer than a slab
	whole, x := packed(t, kind, outputs, inputs, block), activations(rows, inputs)
	require.NoError(t, whole.Slice(4))
	require.ErrorIs(t, whole.Slice(3), ErrShape)
	sum := make([]float32, rows*outputs)
	for i := range 2 {
		m := zeros(t, kind, outputs, inputs/2, block)
		copy(m.data, whole.data[i*whole.bytesOf(inputs/2):])
		require.NoError(t, m.Slice(2))
		var halves []float32
		for r := range rows {
			halves = append(halves, x[r*inputs+i*inputs/2:][:inputs/2]...)
		}
		addTo(sum, product(m, halves, rows))
	}
	require.Equal(t, product(whole, x, rows), sum, "%s, %v", name, kind)
}

func TestSlicesOfRoundedProductsAddUp(t *testing.T) {
	for kind := W8A8; kind.rounds(); kind++ {
		requireSlicesAddUp(t, kind, 32, Kernels())
	}
	m := zeros(t, W8A8, 64, 96, 16)
	require.ErrorIs(t, m.Slice(2), ErrShape, "48 inputs are not whole blocks of activations")
}

// fuzzShapes are small, so that many are tried.
var fuzzShapes = []shape{
	{W8A8, 64, 64, 32}, {W8A8, 5, 64, 16}, {W4A8, 64, 64, 32}, {W4A8Min, 5, 96, 32}, {W5A8, 64, 64, 32},
	{W5A8Min, 5, 96, 32}, {W6A8, 64, 64, 16}, {NL4A8, 5, 96, 32},
}

// Ensure that the kernels of all instruction sets give the same bits. The fuzzer chooses all 32 bits of an activation,
// which may therefore be an infinity or NaN. If the magnitudes of all activations are less than 1e30, the result must
// be close to the float64 sum, also without kernels.
func FuzzRoundedProduct(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63}, uint8(0))
	f.Add([]byte{255, 255, 127, 127, 1, 0, 0, 0}, uint8(3))
	f.Add([]byte{0, 0, 128, 255, 0, 0, 192, 127}, uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, shape uint8) {
		if len(data) < 4 {
			return
		}
		s := fuzzShapes[int(shape)%len(fuzzShapes)]
		m := s.packed(t)
		rows := 1 + len(data)%3
		x, finite := make([]float32, rows*s.inputs), true
		for i := range x {
			offset := i * 4 % (len(data) &^ 3)
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[offset:]))
			finite = finite && math.Abs(float64(x[i])) < 1e30
		}
		var first []uint32
		eachLevel(t, func(name string) {
			dst := product(m, x, rows)
			if finite {
				checkRounded(t, m, x, dst, rows)
			}
			if !fuses() {
				return
			}
			if first == nil {
				first = bitsOf(dst)
			}
			require.Equal(t, first, bitsOf(dst), name)
		})
	})
}

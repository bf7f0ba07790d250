package matrix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

type quantized struct {
	inputs, block int
	low, high     int
	minimum       bool
	factors       bool
}

func (s quantized) Row(int, []float32) { panic("Row was called for a matrix of integers") }

func (s quantized) Quantized(i int, q []int8, scales []Scale) {
	rnd := rand.New(rand.NewPCG(uint64(i), 7))
	for k := range q {
		q[k] = int8(s.low + rnd.IntN(s.high-s.low+1))
	}
	for b := range scales {
		scales[b] = Scale{D: rnd.Float32() * 0.02, Factor: 1, MinFactor: 1}
		if s.minimum {
			scales[b].Min = -rnd.Float32() * 0.2
		}
		if s.factors {
			scales[b].Factor, scales[b].MinFactor = int8(rnd.IntN(256)-128), int8(rnd.IntN(256)-128)
			first := b / (unit / s.block) * (unit / s.block)
			scales[b].D, scales[b].Min = scales[first].D, scales[first].Min
		}
	}
}

type random struct{}

func (random) Row(i int, dst []float32) {
	rnd := rand.New(rand.NewPCG(uint64(i), 9))
	for k := range dst {
		dst[k] = float32(rnd.NormFloat64())
	}
}

// zeros returns a matrix of zeros. Its memory is released at the end of the test.
func zeros(t testing.TB, kind Type, outputs, inputs, block int) *Matrix {
	var a Arena
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	m, err := a.New(kind, outputs, inputs, block)
	require.NoError(t, err)
	return m
}

// integers returns the lowest and the highest integer that a Quantized source may have for matrices of the type.
func (t Type) integers() (low, high int) {
	switch t {
	case F32, F16, BF16, W16A16:
		return 0, 0
	case W4A8, W5A8, W6A8:
		return -int(kinds[t].offset), int(kinds[t].offset) - 1
	case W5A8Min:
		return 0, 31
	}
	if t.bits() == 4 {
		return 0, 15
	}
	return -128, 127
}

func packed(t testing.TB, kind Type, outputs, inputs, block int) *Matrix {
	m := zeros(t, kind, outputs, inputs, block)
	var src Source = random{}
	if low, high := kind.integers(); high != 0 {
		src = quantized{inputs: inputs, block: block, low: low, high: high, minimum: kind.hasMinimum(), factors: kind.units()}
	}
	require.NoError(t, m.Pack(src, 0, m.Panels()))
	return m
}

func activations(rows, cols int) []float32 {
	rnd := rand.New(rand.NewPCG(3, uint64(cols)))
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	return x
}

func input(x []float32, rows int, m *Matrix) *Input {
	i := new(Input)
	for call := range i.Set(x, rows, m.In, m.Form()) {
		i.Pack(call)
	}
	return i
}

func product(m *Matrix, x []float32, rows int) []float32 {
	dst := make([]float32, rows*m.Out)
	m.Product(dst, m.Out, input(x, rows, m), 0, m.Panels(), NewScratch())
	return dst
}

type shape struct {
	kind                   Type
	outputs, inputs, block int
}

func (s shape) packed(t testing.TB) *Matrix { return packed(t, s.kind, s.outputs, s.inputs, s.block) }

var shapes = []shape{
	{F32, 64, 1, 0}, {F32, 130, 300, 0}, {F16, 100, 257, 0}, {BF16, 64, 129, 0}, {BF16, 129, 640, 0},
	{Int8, 96, 320, 32}, {Int8, 64, 144, 16}, {Int4, 70, 288, 32}, {Int4, 128, 160, 16},
	{Int8K, 96, 320, 16}, {Int8KMin, 130, 256, 32}, {Int8KMin, 64, 192, 64}, {Int4K, 70, 320, 32}, {Int4K, 128, 192, 16},
	{NL4, 70, 288, 32}, {Int4F, 70, 96, 32}, {E4M3, 130, 96, 32}, {Int8Min, 70, 96, 32}, {FP4, 128, 96, 32},
}

func TestProductIsTheSumOfTheProducts(t *testing.T) {
	for _, level := range levels() {
		setLevel(t, level)
		for _, s := range shapes {
			t.Run(fmt.Sprintf("%s/%v/%dx%d", Kernels(), s.kind, s.outputs, s.inputs), func(t *testing.T) {
				m := s.packed(t)
				const rows = 13
				x, row := activations(rows, s.inputs), make([]float32, s.inputs)
				dst := product(m, x, rows)
				for i := range s.outputs {
					m.Row(i, row)
					for r := range rows {
						sum, size := 0.0, 0.0
						for k, w := range row {
							p := float64(w) * float64(x[r*s.inputs+k])
							sum, size = sum+p, size+math.Abs(p)
						}
						require.InDelta(t, sum, dst[r*s.outputs+i], size*1e-6*math.Sqrt(float64(s.inputs)), "row %d, output %d", r, i)
					}
				}
			})
		}
	}
}

func TestProductDoesNotDependOnOtherRows(t *testing.T) {
	level.SkipQuick(t)
	for _, level := range levels() {
		setLevel(t, level)
		for _, s := range append(append(shapes, dotShapes...), shortShapes...) {
			m := s.packed(t)
			const maxRows = 53
			x := activations(maxRows, s.inputs)
			var oneByOne []float32
			for r := range maxRows {
				oneByOne = append(oneByOne, product(m, x[r*s.inputs:], 1)...)
			}
			for _, rows := range []int{1, 2, 3, 4, 5, 6, 8, 9, 12, 13, 16, 19, 24, 25, 32, 47, maxRows} {
				together, packedRows := make([]float32, rows*s.outputs), input(x, rows, m)
				for p := m.Panels() - 1; p >= 0; p-- {
					m.Product(together, s.outputs, packedRows, p, p+1, NewScratch())
				}
				require.Equal(t, oneByOne[:rows*s.outputs], together, "%s, %v, %d rows", Kernels(), s.kind, rows)
			}
		}
	}
}

func TestSiLUMulIsGateTimesSigmoidTimesUp(t *testing.T) {
	for _, level := range levels() {
		setLevel(t, level)
		var gate, factor []float32
		for g := float32(-100); g <= 100; g += 0.37 {
			gate, factor = append(gate, g), append(factor, g/3+1)
		}
		dst := make([]float32, len(gate))
		SiLUMul(dst, gate, factor)
		for i, g := range gate {
			want := float64(g) / (1 + math.Exp(-float64(g))) * float64(factor[i])
			require.InDelta(t, want, dst[i], math.Abs(want)*1e-6+1e-30, "%s: silu(%v)", Kernels(), g)
		}
	}
}

// Ensure that Exp is the exponential, and that each instruction set computes the same bits.
func TestExpIsTheExponential(t *testing.T) {
	var original []float32
	for v := float32(-220); v <= 10; v += 0.0131 {
		original = append(original, v)
	}
	original = append(original, float32(math.Inf(-1)), -1e30)
	for _, level := range levels() {
		setLevel(t, level)
		x := slices.Clone(original)
		Exp(x, 3, 0.5)
		for i, v := range original {
			want := math.Exp(float64((v - 3) * 0.5))
			require.InDelta(t, want, x[i], want*3e-6+1e-38, "%s: %v", Kernels(), v)
			require.Equal(t, exponential((v-3)*0.5), x[i], "%s: %v", Kernels(), v)
		}
	}
}

func TestArgMaxIsTheFirstOfTheLargest(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, level := range levels() {
		setLevel(t, level)
		for _, n := range []int{1, 15, 63, 64, 65, 127, 128, 1000, 1024, 1025, 1088, 4096, 32000, 50257} {
			x := make([]float32, n)
			for i := range x {
				x[i] = -1 - float32(i*7919%1000)/1000
			}
			for _, index := range []int{0, 1, 7, 16, 33, 50, 62, 63, 64, 100, 1023, 1024, 1087, 2000, n - 1} {
				if index >= n {
					continue
				}
				keep := x[index]
				for _, v := range []float32{-0.5, 3, inf} {
					x[index] = v
					place, value := ArgMax(x)
					require.Equal(t, index, place, "%s: %v at %d of %d", Kernels(), v, index, n)
					require.Equal(t, v, value)
				}
				last := x[n-1]
				x[n-1] = inf
				place, _ := ArgMax(x)
				require.Equal(t, index, place, "%s: of two at %d and at the end of %d", Kernels(), index, n)
				x[index], x[n-1] = keep, last
				for _, v := range []float32{nan, -nan, math.Float32frombits(0xffc00000), math.Float32frombits(0x7f800001)} {
					x[index] = v
					_, value := ArgMax(x)
					require.True(t, value != value, "%s: %x at %d of %d", Kernels(), math.Float32bits(v), index, n)
				}
				x[index] = keep
			}
			for i := range x {
				x[i] = -inf
			}
			place, value := ArgMax(x)
			require.Zero(t, place)
			require.Equal(t, -inf, value)
		}
		place, value := ArgMax(nil)
		require.Zero(t, place)
		require.Equal(t, -inf, value)
	}
}

func TestShapesThatCannotBeAreRefused(t *testing.T) {
	tests := []struct {
		name                   string
		kind                   Type
		outputs, inputs, block int
	}{
		{"no outputs", F32, 0, 4, 0},
		{"no inputs", F32, 4, 0, 0},
		{"blocks of floats", F16, 4, 64, 32},
		{"integers without blocks", Int8, 4, 64, 0},
		{"blocks that do not divide", Int4, 4, 48, 32},
		{"blocks larger than a slab", Int4, 4, 512, 256},
		{"blocks of 5 bits that are shorter than those of activations", W5A8, 4, 64, 16},
		{"half a block of activations", W8A8, 4, 48, 16},
		{"8-bit activations without blocks", W4A8Min, 4, 64, 0},
		{"blocks that kernels have not", W8A8, 4, 96, 8},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := new(Arena).New(test.kind, test.outputs, test.inputs, test.block)
			require.ErrorIs(t, err, ErrShape)
		})
	}
	m := packed(t, Int8, 64, 32, 32)
	require.ErrorIs(t, m.Pack(random{}, 0, 1), ErrShape)
}

// BenchmarkProduct also reports the size of the weights divided by the time of a product. With one row, this is the
// rate at which weights are read, and it limits the speed.
func BenchmarkProduct(b *testing.B) {
	for _, kind := range []Type{F32, F16, BF16, Int8, Int4, Int8Min, Int8K, Int8KMin, Int4K, NL4, W8A8, W4A8, W4A8Min,
		W5A8, W5A8Min, W6A8, NL4A8, W16A16} {
		block := 0
		if kind >= Int8 && kind != W16A16 {
			block = 32
		}
		m := zeros(b, kind, 64*256, 4096, block)
		for i := range m.data {
			m.data[i] = byte(i) & 0x3b
		}
		for _, rows := range []int{1, 4, 16, 32, 512} {
			b.Run(fmt.Sprintf("%v/rows=%d", kind, rows), func(b *testing.B) {
				x, dst, s := input(activations(rows, m.In), rows, m), make([]float32, rows*m.Out), NewScratch()
				b.SetBytes(int64(m.Bytes()))
				for b.Loop() {
					m.Product(dst, m.Out, x, 0, m.Panels(), s)
				}
				b.ReportMetric(2*float64(rows*m.In*m.Out)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOP/s")
			})
		}
	}
}

func TestTimesAreComparedOnlyOfMatricesThatCanBe(t *testing.T) {
	require.Positive(t, TimesAsLong(Int8, W8A8, 32))
	require.Positive(t, TimesAsLong(F16, W16A16, 0))
	require.True(t, math.IsNaN(TimesAsLong(Int8, W5A8, 16)), "W5A8 has no blocks of 16")
	require.True(t, math.IsNaN(TimesAsLong(W8A8, Int8, 0)))
}

func TestMatricesOfAnArenaLieApart(t *testing.T) {
	var a Arena
	var all []*Matrix
	for i, inputs := range []int{3, 64, 1, 200, 1 << 17, 5, 1 << 17, 128} { // 2 of 64 MB with their neighbours
		m, err := a.New(F32, 64, inputs, 0)
		require.NoError(t, err)
		require.NoError(t, m.Pack(constant{float32(i + 1)}, 0, 1))
		all = append(all, m)
	}
	for i, m := range all {
		row := make([]float32, m.In)
		for output := range 64 {
			m.Row(output, row)
			require.Equal(t, float32(i+1), row[0])
			require.Equal(t, float32(i+1), row[m.In-1])
		}
	}
	_, err := a.New(Int8, 64, 33, 32)
	require.ErrorIs(t, err, ErrShape)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
}

type constant struct{ value float32 }

func (c constant) Row(_ int, dst []float32) {
	for k := range dst {
		dst[k] = c.value
	}
}

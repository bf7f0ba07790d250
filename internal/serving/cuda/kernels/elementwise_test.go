package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda/kernels"
)

func TestActivationsMatchFloat64(t *testing.T) {
	g := newGPU(t)
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	gelu := func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
	for _, c := range []struct {
		function kernels.Function
		gated    bool
		compute  func(x, up float64) float64
	}{
		{kernels.SiLUAndMul, true, func(x, y float64) float64 { return x * sigmoid(x) * y }},
		{kernels.GELUTanhAndMul, true, func(x, y float64) float64 { return gelu(x) * y }},
		{kernels.SwiGLUOAIAndMul, true, func(x, y float64) float64 {
			x, y = min(x, 7), max(-7, min(y, 7))
			return x * sigmoid(1.702*x) * (y + 1)
		}},
		{kernels.GELUNew, false, func(x, _ float64) float64 { return gelu(x) }},
		{kernels.ReLU, false, func(x, _ float64) float64 { return max(x, 0) }},
	} {
		for _, kind := range types {
			t.Run(fmt.Sprintf("%s in %v", c.function, kind), func(t *testing.T) {
				const rows, n = 2, 2056 // more than the elements of a block
				width := n
				if c.gated {
					width = 2 * n
				}
				input := random(kind, 1, rows*width)
				for i, x := range []float64{0, -20, 20, 60, -60} { // where the function is flat, and a factor beyond its limit
					input[i], input[rows*width-1-i] = x, 2*x
				}
				input = decode(kind, encode(kind, input))
				want := make([]float64, rows*n)
				for i := range want {
					row, column := i/n, i%n
					want[i] = c.compute(input[row*width+column], input[row*width+(column+n)%width])
				}
				out := g.empty(2 * rows * n)
				require.NoError(t, kernels.Activation{Type: kind, Function: c.function, Out: out.Pointer(), In: g.encoded(kind, input).Pointer(), Rows: rows, N: n}.Launch(g.set, g.stream))
				requireClose(t, kind, want, decode(kind, g.read(out)))
			})
		}
	}
}

// Ensure that Add rounds a sum only once. The first launch adds a bias to all rows, and replaces In by the sums. The
// second launch replaces Other by the sums.
func TestSumsMatchFloat64(t *testing.T) {
	g := newGPU(t)
	const rows, n, scale = 3, 2056, 0.22
	for _, kind := range types {
		input, other := random(kind, 1, rows*n), random(kind, 2, rows*n)
		bias, residual := make([]float64, rows*n), make([]float64, rows*n)
		for i := range input {
			bias[i] = input[i] + other[i%n]
			residual[i] = input[i]*float64(float32(scale)) + other[i]
		}
		sum := g.encoded(kind, input)
		a := kernels.Add{Type: kind, Out: sum.Pointer(), In: sum.Pointer(), Other: g.encoded(kind, other).Pointer(), Rows: rows, N: n, Scale: 1}
		require.NoError(t, a.Launch(g.set, g.stream))
		require.Equal(t, encode(kind, bias), g.read(sum))
		sum = g.encoded(kind, other)
		a = kernels.Add{Type: kind, Out: sum.Pointer(), In: g.encoded(kind, input).Pointer(), Other: sum.Pointer(), Stride: n, Rows: rows, N: n, Scale: scale}
		require.NoError(t, a.Launch(g.set, g.stream))
		requireClose(t, kind, residual, decode(kind, g.read(sum)))
	}
	require.ErrorContains(t, kernels.Add{N: 8, Rows: 1, Stride: 4}.Launch(g.set, g.stream), "multiple of 8")
}

func TestEmbeddingTakesTheRowsOfTokens(t *testing.T) {
	g := newGPU(t)
	const n, vocabulary = 264, 10
	tokens, positions := []int32{3, 9, 0, 3}, []int32{0, 1, 2, 3}
	for _, kind := range types {
		table, learned := random(kind, 1, vocabulary*n), random(kind, 2, 4*n)
		for _, add := range []bool{false, true} {
			want := make([]float64, len(tokens)*n)
			for i := range want {
				want[i] = table[int(tokens[i/n])*n+i%n] * 4
				if add {
					want[i] += learned[int(positions[i/n])*n+i%n]
				}
			}
			out := g.empty(2 * len(want))
			a := kernels.Embedding{Type: kind, Out: out.Pointer(), Table: g.encoded(kind, table).Pointer(), Tokens: g.bytes(words(tokens...)).Pointer(), Rows: len(tokens), N: n, Scale: 4}
			if add {
				a.PositionTable, a.Positions = g.encoded(kind, learned).Pointer(), g.bytes(words(positions...)).Pointer()
			}
			require.NoError(t, a.Launch(g.set, g.stream))
			requireClose(t, kind, want, decode(kind, g.read(out)))
		}
	}
}

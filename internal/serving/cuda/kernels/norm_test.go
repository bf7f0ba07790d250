package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

var types = []kernels.Type{kernels.F16, kernels.BF16}

// rms is the reference of RMSNorm, in float64.
func rms(rows, weight, _ []float64, offset float64) []float64 {
	n := len(weight)
	out := make([]float64, len(rows))
	for begin := 0; begin < len(rows); begin += n {
		squares := 0.0
		for _, x := range rows[begin : begin+n] {
			squares += x * x
		}
		for i := range n {
			out[begin+i] = rows[begin+i] / math.Sqrt(squares/float64(n)+1e-6) * (weight[i] + offset)
		}
	}
	return out
}

// layer is the reference of LayerNorm.
func layer(rows, weight, bias []float64, _ float64) []float64 {
	n := len(weight)
	out := make([]float64, len(rows))
	for begin := 0; begin < len(rows); begin += n {
		sum, squares := 0.0, 0.0
		for _, x := range rows[begin : begin+n] {
			sum += x
		}
		mean := sum / float64(n)
		for _, x := range rows[begin : begin+n] {
			squares += (x - mean) * (x - mean)
		}
		for i := range n {
			out[begin+i] = (rows[begin+i]-mean)/math.Sqrt(squares/float64(n)+1e-6)*weight[i] + bias[i]
		}
	}
	return out
}

// Ensure that norms match float64, with and without a residual, in every order of threads.
func TestNormsMatchFloat64(t *testing.T) {
	g := newGPU(t)
	for _, norm := range []struct {
		name   string
		want   func(rows, weight, bias []float64, offset float64) []float64
		launch func(kind kernels.Type, out, input, residual, weight, bias *cuda.Memory, rows, n int, offset float64) error
	}{
		{"rms_norm", rms, func(kind kernels.Type, out, x, residual, weight, _ *cuda.Memory, rows, n int, offset float64) error {
			return kernels.RMSNorm{Type: kind, Tokens: rows, N: n, Epsilon: 1e-6, WeightOffset: float32(offset),
				Out: out.Pointer(), In: x.Pointer(), Residual: pointer(residual), Weight: weight.Pointer()}.Launch(g.set, g.stream)
		}},
		{"layer_norm", layer, func(kind kernels.Type, out, x, residual, weight, bias *cuda.Memory, rows, n int, _ float64) error {
			return kernels.LayerNorm{Type: kind, Rows: rows, N: n, Epsilon: 1e-6,
				Out: out.Pointer(), In: x.Pointer(), Residual: pointer(residual), Weight: weight.Pointer(), Bias: bias.Pointer()}.Launch(g.set, g.stream)
		}},
	} {
		for i, c := range []struct {
			rows, n int
			offset  float64
		}{{1, 8, 0}, {3, 64, 1}, {2, 1000, 0}, {2, 4096, 0}, {1, 8200, 0}} {
			kind := types[i%2]
			t.Run(fmt.Sprintf("%s of %d rows of %d in %v", norm.name, c.rows, c.n, kind), func(t *testing.T) {
				g.Order(i % 3)
				input, residual := random(kind, 1, c.rows*c.n), random(kind, 2, c.rows*c.n)
				weight, bias := random(kind, 3, c.n), random(kind, 4, c.n)
				x, w, b, out := g.encoded(kind, input), g.encoded(kind, weight), g.encoded(kind, bias), g.empty(2*len(input))
				require.NoError(t, norm.launch(kind, out, x, nil, w, b, c.rows, c.n, c.offset))
				requireClose(t, kind, norm.want(input, weight, bias, c.offset), decode(kind, g.read(out)))

				sum := make([]float64, len(input))
				for i := range input {
					sum[i] = input[i] + residual[i]
				}
				sum = decode(kind, encode(kind, sum))
				r := g.encoded(kind, residual)
				require.NoError(t, norm.launch(kind, out, x, r, w, b, c.rows, c.n, c.offset))
				requireClose(t, kind, norm.want(sum, weight, bias, c.offset), decode(kind, g.read(out)))
				require.Equal(t, sum, decode(kind, g.read(r)))
			})
		}
	}
}

// Ensure that a normalized row has the same bits alone and among other rows. Elements outside the rows must not change.
func TestRMSNormOfARowDoesNotDependOnTheBatch(t *testing.T) {
	g := newGPU(t)
	const tokens, n, stride = 5, 128, 3 * 128
	input := random(kernels.F16, 4, tokens*stride)
	weight := g.encoded(kernels.F16, random(kernels.F16, 5, n))
	all, separate := g.encoded(kernels.F16, input), g.encoded(kernels.F16, input)
	a := kernels.RMSNorm{Tokens: tokens, Stride: stride, N: n, Epsilon: 1e-6, In: all.Pointer(), Weight: weight.Pointer(), Out: all.Pointer()}
	require.NoError(t, a.Launch(g.set, g.stream))
	for token := range tokens {
		row := separate.Pointer() + cuda.Pointer(2*token*stride)
		a = kernels.RMSNorm{Tokens: 1, N: n, Epsilon: 1e-6, In: row, Weight: weight.Pointer(), Out: row}
		require.NoError(t, a.Launch(g.set, g.stream))
	}
	got := g.read(all)
	require.Equal(t, got, g.read(separate))
	require.Equal(t, input[n:stride], decode(kernels.F16, got[2*n:2*stride]))
}

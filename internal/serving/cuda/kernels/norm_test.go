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

// normalized is the reference, in float64.
func normalized(rows, weight []float64, n int, offset float64) []float64 {
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

// Ensure that rows are normalized as in float64, with and without a residual, whatever the order in which threads run.
func TestRMSNormMatchesFloat64(t *testing.T) {
	g := newGPU(t)
	for _, c := range []struct {
		rows, n int
		offset  float64
	}{{1, 8, 0}, {3, 64, 1}, {2, 1000, 0}, {5, 4096, 0}, {1, 8200, 0}} {
		for _, kind := range types {
			for order := range 3 {
				t.Run(fmt.Sprintf("%d rows of %d in %v, order %d", c.rows, c.n, kind, order), func(t *testing.T) {
					g.Order(order)
					in, residual, weight := random(kind, 1, c.rows*c.n), random(kind, 2, c.rows*c.n), random(kind, 3, c.n)
					a := kernels.RMSNorm{Type: kind, Rows: c.rows, N: c.n, Epsilon: 1e-6, WeightOffset: float32(c.offset),
						In: g.bytes(encode(kind, in)).Pointer(), Weight: g.bytes(encode(kind, weight)).Pointer()}
					out := g.empty(2 * c.rows * c.n)
					a.Out = out.Pointer()
					require.NoError(t, a.Launch(g.set, g.stream))
					requireClose(t, kind, normalized(in, weight, c.n, c.offset), decode(kind, g.read(out)))

					sum := make([]float64, len(in))
					for i := range in {
						sum[i] = in[i] + residual[i]
					}
					sum = decode(kind, encode(kind, sum))
					r := g.bytes(encode(kind, residual))
					a.Residual = r.Pointer()
					require.NoError(t, a.Launch(g.set, g.stream))
					requireClose(t, kind, normalized(sum, weight, c.n, c.offset), decode(kind, g.read(out)))
					require.Equal(t, sum, decode(kind, g.read(r)))
				})
			}
		}
	}
}

// Ensure that a row has the same bits alone and among others.
func TestRMSNormOfARowDoesNotDependOnTheBatch(t *testing.T) {
	g := newGPU(t)
	const rows, n = 7, 1024
	in, weight := g.bytes(encode(kernels.F16, random(kernels.F16, 4, rows*n))), g.bytes(encode(kernels.F16, random(kernels.F16, 5, n)))
	all, alone := g.empty(2*rows*n), g.empty(2*rows*n)
	a := kernels.RMSNorm{Rows: rows, N: n, Epsilon: 1e-6, In: in.Pointer(), Weight: weight.Pointer(), Out: all.Pointer()}
	require.NoError(t, a.Launch(g.set, g.stream))
	for row := range rows {
		a.Rows, a.In, a.Out = 1, in.Pointer()+cuda.Pointer(2*n*row), alone.Pointer()+cuda.Pointer(2*n*row)
		require.NoError(t, a.Launch(g.set, g.stream))
	}
	require.Equal(t, g.read(all), g.read(alone))
}

func TestRMSNormRefusesRowsThatAreNotWholeVectors(t *testing.T) {
	g := newGPU(t)
	err := kernels.RMSNorm{Rows: 1, N: 12}.Launch(g.set, g.stream)
	require.EqualError(t, err, "rms_norm of rows of 12 elements: the length must be a multiple of 8")
}

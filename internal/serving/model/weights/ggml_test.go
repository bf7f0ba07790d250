package weights

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/matrix"
)

// fromGGML is the test data of a type: blocks as one row, and the numbers that ggml made of them.
func fromGGML(t *testing.T, d DType) (*Tensor, []float32) {
	data, err := os.ReadFile(filepath.Join("testdata", "ggml", d.String()+".bin"))
	require.NoError(t, err)
	l := layouts[d]
	n := len(data) / (l.bytes + 4*l.elements)
	require.Equal(t, len(data), n*(l.bytes+4*l.elements))
	require.Positive(t, n)
	blocks, numbers := data[:n*l.bytes], data[n*l.bytes:]
	tensor, err := makeTensor("x", d, []uint64{uint64(n * l.elements)}, blocks)
	require.NoError(t, err)
	want := make([]float32, n*l.elements)
	for i := range want {
		want[i] = float32At(numbers[i*4:])
	}
	return tensor, want
}

// The numbers of each type are those that ggml makes of the same blocks, to the bit but for the sign of zeros, and so
// are those of the matrix that they are packed into.
func TestNumbersAreThoseOfGGML(t *testing.T) {
	for d := Q8_0; d <= IQ4_XS; d++ {
		t.Run(d.String(), func(t *testing.T) {
			tensor, want := fromGGML(t, d)
			equal(t, want, tensor.Vector())

			var a matrix.Arena
			defer func() { require.NoError(t, a.Close()) }()
			m, err := a.New(tensor.Packed(), 1, tensor.Cols, tensor.Block())
			require.NoError(t, err)
			require.NoError(t, m.Pack(tensor, 0, 1))
			have := make([]float32, tensor.Cols)
			m.Row(0, have)
			if d == Q4_0 { // its minimum is not finite in F16 if its scale is above 8191
				for i, v := range have {
					if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
						have[i] = want[i]
					}
				}
			}
			equal(t, want, have)
		})
	}
}

// equal compares numbers, of which not all may be 0.
func equal(t *testing.T, want, have []float32) {
	t.Helper()
	zeros := 0
	for i, v := range have {
		if v == 0 {
			zeros++
		}
		if want[i] != v {
			require.Equal(t, want[i], v, "element %d", i)
		}
	}
	require.Less(t, zeros, len(want)/2)
}

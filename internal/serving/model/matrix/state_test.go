package matrix

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that UpdateState and ReadState compute what a loop in float64 computes, for sizes that need each kernel.
func TestStates(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 9))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		return x
	}
	for _, columns := range []int{1, 7, 8, 16, 24, 64, 96, 123, 128} {
		for _, rows := range []int{1, 16, 33} {
			for _, level := range levels() {
				setLevel(t, level)
				state, value, key, query := random(rows*columns), random(columns), random(rows), random(rows)
				read, out := make([]float32, columns), make([]float32, columns)
				ReadState(read, state, key)
				updated := slices.Clone(state)
				UpdateState(out, updated, value, key, query, 0.75)
				for c := range columns {
					wantRead, wantOut := 0.0, 0.0
					for r := range rows {
						s := float64(state[r*columns+c])
						wantRead += float64(key[r]) * s
						s = 0.75*s + float64(key[r])*float64(value[c])
						wantOut += float64(query[r]) * s
						require.InDelta(t, s, updated[r*columns+c], 1e-5, "%s, %d × %d", Kernels(), rows, columns)
					}
					require.InDelta(t, wantRead, read[c], 1e-4)
					require.InDelta(t, wantOut, out[c], 1e-4)
				}
			}
		}
	}
}

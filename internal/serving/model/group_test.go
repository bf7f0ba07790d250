package model_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
)

// Ensure that sums have the bits of (a+b)+(c+d), which other orders have not, in every worker.
func TestSumsAreInAFixedOrder(t *testing.T) {
	for _, n := range []int{2, 4} {
		rnd := rand.New(rand.NewPCG(uint64(n), 6))
		x := make([][]float32, n)
		for i := range x {
			for range 1003 {
				x[i] = append(x[i], float32(math.Ldexp(rnd.NormFloat64(), rnd.IntN(20))))
			}
		}
		want, other := make([]float32, len(x[0])), make([]float32, len(x[0]))
		for i := range want {
			want[i] = x[0][i] + x[1][i]
			if other[i] = want[i]; n == 4 {
				want[i], other[i] = want[i]+(x[2][i]+x[3][i]), want[i]+x[2][i]+x[3][i]
			}
		}
		require.Equal(t, n == 2, equal(want, other))
		g := model.NewWorkers(n)
		var wait sync.WaitGroup
		for rank := range x {
			wait.Go(func() {
				if err := g.AllReduce(rank, x[rank]); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		for rank := range x {
			require.True(t, equal(want, x[rank]), "worker %d of %d", rank, n)
		}
	}
}

func equal(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

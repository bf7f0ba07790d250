//go:build amd64 && !purego

package matrix

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFastestOfSomeRunsCounts(t *testing.T) {
	clock, n := time.Unix(0, 0), 0
	run := func() {
		n++
		clock = clock.Add(time.Duration([]int{1, 90, 80, 70, 5, 60, 90, 90}[n-1]))
	}
	require.Equal(t, time.Duration(5), fastest(run, func() time.Time { return clock }))
	require.Equal(t, 8, n)
}

// Ensure that what is measured decides how weights are packed, only where there is a choice.
func TestPairsAreUsedOnlyWhereTheyAreFast(t *testing.T) {
	withoutTiles(t)
	had, hadBF16, measured := pairsAreFast, hasBF16, 0
	t.Cleanup(func() { pairsAreFast, hasBF16 = had, hadBF16 })
	for _, level := range []instructions{portable, avx2, avx512} {
		setLevel(t, level)
		for _, bf16 := range []bool{false, true} {
			for _, fast := range []bool{false, true} {
				hasBF16, pairsAreFast = bf16, func() bool { measured++; return fast }
				for _, kind := range []Type{BF16, W16A16} {
					m, err := shaped(kind, Panel, 2, 0)
					require.NoError(t, err)
					require.Equal(t, kind == W16A16 && level == avx512 && bf16 && fast, m.pairs)
				}
			}
		}
	}
	require.Equal(t, 2, measured, "only with AVX512_BF16")
}

// Ensure that tiles are used only for numbers of rows for which they are as fast, if a tile takes the time of some rows
// without tiles.
func TestTilesAreUsedOnlyWhereTheyAreFast(t *testing.T) {
	for rowsOfATile, want := range map[int]int{3: 4, 4: 4, 5: 8, 8: 8, 9: 33, 11: 33, 12: 65, 13: 65, 14: math.MaxInt, 100: math.MaxInt} {
		times := func(rows int) float64 { return float64((rows+15)/16*rowsOfATile) / float64(rows) }
		fewest := fewestRows(times)
		require.Equal(t, want, fewest, rowsOfATile)
		for rows := fewest; rows < 1000; rows++ {
			require.LessOrEqual(t, times(rows), 1.0, "a tile like %d rows, for %d rows", rowsOfATile, rows)
		}
	}
	require.Equal(t, math.MaxInt, fewestRows(func(int) float64 { return math.NaN() }), "nothing can be measured")
}

func TestATrialIsAProduct(t *testing.T) {
	for _, pairs := range []bool{false, true} {
		if pairs && !(best() == avx512 && hasBF16) {
			t.Skip("the processor has no AVX512_BF16")
		}
		var a Arena
		trial := newTrial(&a, Matrix{Type: W16A16, Out: trialOutputs, In: trialInputs, pairs: pairs}, 24)
		for i := range trial.x {
			trial.x[i] = float32(i % 3)
		}
		for i := range trial.m.data {
			trial.m.data[i] = byte(0x80 - i%2*0x41) // 0x3f80: 1
		}
		trial.run()
		sum := float32(0)
		for _, v := range trial.x[:trial.m.In] {
			sum += v
		}
		require.Equal(t, sum, trial.dst[0])
		require.NoError(t, a.Close())
	}
}

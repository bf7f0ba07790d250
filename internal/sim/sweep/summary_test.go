package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim/chart"
)

// Ensure that runs that are alike, as those of a trace, can be drawn: rounding is
// no deviation.
func TestSpreadOfEqualValues(t *testing.T) {
	for _, v := range []float64{0.1, 0.0263976, 1.0 / 3, 7e-5} {
		for n := 1; n < 8; n++ {
			var all []float64
			for range n {
				all = append(all, v)
			}
			got := spread(all)
			require.InEpsilon(t, v, got.Mean, 1e-12)
			require.Zero(t, got.SD)
		}
	}
	require.Equal(t, chart.Value{Mean: 2, SD: 1, Seeds: 3}, spread([]float64{1, 2, 3}))
}

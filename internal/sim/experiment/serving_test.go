package experiment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/chart"
)

// Ensure that the simulation of llmserve predicts what was measured: three loads by five
// numbers, within 10 % (throughput), 15 % (medians) and 25 % (90th percentiles).
func TestTheServerIsPredicted(t *testing.T) {
	report, err := Run(context.Background(), Options{Only: []string{"served"}})
	require.NoError(t, err)
	require.Len(t, report.Figures, 1)
	require.Len(t, report.Figures[0].Panels, len(servedMetrics))
	require.Equal(t, chart.Predicted, report.Figures[0].Kind)
	require.Len(t, report.Checks, 3*len(servedMetrics))
	for _, c := range report.Checks {
		require.True(t, c.OK, "%+v", c)
	}
	require.NoError(t, chart.Write(t.TempDir(), report.Figures, report.Checks...))
}

func TestTheMedianOfAnEvenNumberIsBetweenTheMiddleTwo(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 2.5, median([]float64{9, 1, 2, 3}))
}

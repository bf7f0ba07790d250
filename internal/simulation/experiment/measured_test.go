package experiment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/chart"
)

func TestMeasuredFiguresNameTheirMachine(t *testing.T) {
	report, err := Run(context.Background(), Options{Only: []string{"fig18a"}})
	require.NoError(t, err)
	require.Len(t, report.Figures, 1)
	f := report.Figures[0]
	require.Equal(t, chart.Measured, f.Kind)
	require.Contains(t, f.Note, "Measured on this machine")
	require.Contains(t, f.Note, measured.Machine)
	bars := f.Panels[0].Data.(chart.Bars)
	require.Equal(t, []string{"64", "128", "256", "1024", "4096"}, bars.Groups)
	for _, s := range bars.Series {
		require.Equal(t, &chart.Range{Low: 1.20, High: 1.26}, s.Values[0].Paper)
		require.Nil(t, s.Values[4].Paper, "the paper has no contexts of 4,096")
	}
	require.NoError(t, chart.Write(t.TempDir(), report.Figures, report.Checks...))
	for _, c := range report.Checks {
		require.True(t, c.OK, "%+v", c)
	}
}

func TestMeasuredSwappingIsDrawn(t *testing.T) {
	b := &bench{}
	b.swapMeasured()
	require.Equal(t, chart.Measured, b.report.Figures[0].Kind)
	require.NoError(t, chart.Write(t.TempDir(), b.report.Figures))
}

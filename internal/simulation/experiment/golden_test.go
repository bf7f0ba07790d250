package experiment

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/testkit/level"
)

var update = flag.Bool("update", false, "write the pictures of the READMEs anew")

// Ensure that the experiments draw exactly the two figures in the READMEs. All checks of these experiments must pass.
func TestPicturesOfTheREADMEs(t *testing.T) {
	level.SkipQuick(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("another processor may round differently")
	}
	waste := requirePicture(t, "fig2", "fig02-memory-waste.svg", 14)
	require.Equal(t, "seeds 1 to 8, 900 s", waste.Seeds)
	requirePicture(t, "served", "served.svg", 3*len(servedMetrics))

	// With other seeds the numbers differ.
	r, err := Run(context.Background(), Options{Only: []string{"fig2"}, Seeds: 1})
	require.NoError(t, err)
	require.Equal(t, "seed 1, 900 s", r.Figures[0].Seeds)
	require.NotEqual(t, waste.Panels[0].Data, r.Figures[0].Panels[0].Data)
}

func requirePicture(t *testing.T, figure, name string, checks int) chart.Figure {
	report, err := Run(context.Background(), Options{Only: []string{figure}})
	require.NoError(t, err)
	require.Len(t, report.Checks, checks)
	for _, c := range report.Checks {
		require.True(t, c.OK, "%+v", c)
	}
	dir := t.TempDir()
	require.NoError(t, chart.Write(dir, report.Figures, report.Checks...))
	got, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(name, got, 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "the figure has changed: run this test with -update")
	return report.Figures[0]
}

func TestTheMedianOfAnEvenNumberIsBetweenTheMiddleTwo(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 2.5, median([]float64{9, 1, 2, 3}))
}

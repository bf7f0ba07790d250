package experiment

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/chart"
	"llmmemory/internal/testkit/level"
)

var update = flag.Bool("update", false, "write the pictures of the READMEs anew")

// Ensure that the pictures of the READMEs are what the experiments give.
func TestPicturesOfTheREADMEs(t *testing.T) {
	level.SkipQuick(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("another processor may round differently")
	}
	t.Run("fig2", func(t *testing.T) { requirePicture(t, "fig2", "fig02-memory-waste.svg") })
	t.Run("served", func(t *testing.T) { requirePicture(t, "served", "served.svg") })
}

func requirePicture(t *testing.T, figure, name string) {
	report, err := Run(context.Background(), Options{Only: []string{figure}})
	require.NoError(t, err)
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
}

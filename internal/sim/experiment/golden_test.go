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
)

var update = flag.Bool("update", false, "write the picture of the README anew")

// Ensure that the picture of the README is what the experiment gives.
func TestPictureOfTheREADME(t *testing.T) {
	const name = "fig02-memory-waste.svg"
	if runtime.GOARCH != "amd64" {
		t.Skip("another processor may round differently")
	}
	report, err := Run(context.Background(), Options{Only: []string{"fig2"}})
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

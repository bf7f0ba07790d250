package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheAssemblyOfThePackageIsWhatThisWrites(t *testing.T) {
	files, err := generate()
	require.NoError(t, err)
	for name, want := range files {
		if strings.HasSuffix(name, ".go") {
			want, err = format.Source(want)
			require.NoError(t, err)
		}
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "%s is out of date; run: go run ./internal/attention/gen -o internal/attention", name)
	}
	assembly, err := filepath.Glob("../*_amd64.s")
	require.NoError(t, err)
	for _, name := range assembly {
		require.Contains(t, files, filepath.Base(name), "a file that nothing writes")
	}
}

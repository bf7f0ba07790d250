//go:build long

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/assembly"
)

func TestTheAssemblyOfThePackageIsWhatThisWrites(t *testing.T) {
	files, err := generate()
	require.NoError(t, err)
	outdated, err := assembly.Outdated(files, "..")
	require.NoError(t, err)
	require.Empty(t, outdated, "run: go run ./internal/serving/attention/gen -o internal/serving/attention")
}

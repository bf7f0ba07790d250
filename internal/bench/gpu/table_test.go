package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/cudatest"
)

// Ensure that a case that needs more memory than the GPU has is no error.
func TestASmallGPUHasFewerRows(t *testing.T) {
	driver := cudatest.Open(t)
	driver.Set(t, "memory", 1<<20)
	b, err := newBench(driver.Path, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.close()) })
	require.NoError(t, b.table([]benchmark{sample(2, 1000, 50), sample(4, 100_000, 0), sample(3, 500, 0)}, nil, 0))
}

package replay

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that every recording plays to the same result in every field.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("../../testdata/traces/v1/*.jsonl.gz")
	require.NoError(t, err)
	require.Len(t, files, 31)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			trace, err := Load(file)
			require.NoError(t, err)
			require.NoError(t, Verify(trace))
		})
	}
}

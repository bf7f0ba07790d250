package replay

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that every recording of V0, of the paper's system and of Orca plays to
// the same result in every field, up to an operation that fails.
func TestEveryRecordingOfV0AndThePaperPlaysEqual(t *testing.T) {
	files, err := filepath.Glob("../../testdata/traces/v0/*.jsonl.gz")
	require.NoError(t, err)
	require.Len(t, files, 27)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			trace, err := LoadOld(file)
			require.NoError(t, err)
			compared, err := VerifyOld(trace)
			require.NoError(t, err)
			lines := len(trace.Ops) + 1
			if filepath.Base(file) == "v0_swa_overadmit.jsonl.gz" {
				lines-- // a state of vLLM's own after a failed allocate
			}
			require.Equal(t, lines, compared)
		})
	}
}

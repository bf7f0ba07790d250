package carried_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/carried"
)

var update = flag.Bool("update", false, "copy the originals")

func TestCopiesEqualTheirOriginals(t *testing.T) {
	for _, c := range []struct {
		original, copied string
		carried          []byte
	}{
		{"../../../llm_memory.h", "llm_memory.h", carried.Header},
		{"../../../grader/runner.c", "runner.c.txt", carried.Runner},
		{"../../../grader/watched.c", "watched.c.txt", carried.Watched},
		{"../../../grader/launch.c", "launch.c.txt", carried.Launcher},
	} {
		original, err := os.ReadFile(c.original)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(c.copied, original, 0o644))
			continue
		}
		require.Equal(t, string(original), string(c.carried), "%s: go test ./internal/grade/carried -update", c.copied)
	}
}

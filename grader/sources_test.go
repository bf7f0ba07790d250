package grader

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "copy llm_memory.h")

func TestHeaderEqualsTheOneAtTheRoot(t *testing.T) {
	want, err := os.ReadFile("../llm_memory.h")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("process/llm_memory.h", want, 0o644))
		return
	}
	require.Equal(t, string(want), string(Header), "run: go test ./grader -update")
}

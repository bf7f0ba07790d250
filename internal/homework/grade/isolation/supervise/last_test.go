package supervise_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/supervise"
)

func TestLastIsTheCallThatWasRead(t *testing.T) {
	ops := []trace.Op{{Kind: trace.Init, A: 640}, {Kind: trace.Create, A: 1, B: 5}, {Kind: trace.Append, A: 1, B: 7}, {Kind: trace.Free, A: 1}}
	steps, err := supervise.Steps{Traces: [][]trace.Op{ops}}.File(t.TempDir())
	require.NoError(t, err)
	defer steps.Close()
	const size = 24 // of struct step
	// The file has seven steps. Only the second to the fifth are calls. The others separate traces or end the file, so
	// Last returns "" for them.
	for read, want := range []string{"", "", "llm_init", "create_sequence", "append_kv", "free_sequence", "", ""} {
		_, err := steps.Seek(int64(read)*size, io.SeekStart)
		require.NoError(t, err)
		require.Equal(t, want, supervise.Last(steps), "after %d steps", read)
	}
}

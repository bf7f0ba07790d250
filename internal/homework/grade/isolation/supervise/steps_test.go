package supervise

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/homework/course/trace"
)

func TestUntilIsTheTraceThatWasPlayed(t *testing.T) {
	parse := func(text string) []trace.Op {
		ops, err := trace.Parse(text)
		require.NoError(t, err)
		return ops
	}
	s := Steps{Traces: [][]trace.Op{
		parse("init e0 640\ncreate e0 1 1\n"),
		parse("init e0 64 3072\ncreate e0 1 1\n"), // is left out
		parse("given init e0 640\ngiven create e0 1 20\nfree e0 1\nfrees e0 2 3\n"),
	}}
	file, err := s.file(t.TempDir())
	require.NoError(t, err)
	defer file.Close()
	for steps, want := range map[int64][]trace.Op{
		0: nil,
		1: nil, // the end of what was before the first
		2: s.Traces[0][:1],
		3: s.Traces[0],
		4: nil,
		5: nil,
		6: s.Traces[2][:1],
		7: s.Traces[2][:2], // one of the changes that make a sequence
	} {
		_, err := file.Seek(steps*stepBytes, io.SeekStart)
		require.NoError(t, err)
		ops, err := s.prefix(file)
		require.NoError(t, err)
		require.Equal(t, want, ops, steps)
	}
	_, err = file.Seek(-3*stepBytes, io.SeekEnd) // before the end of the trace and of all
	require.NoError(t, err)
	ops, err := s.prefix(file)
	require.NoError(t, err)
	require.Equal(t, s.Traces[2], ops)
}

// Ensure that a full disk leaves neither an open file nor a file in the folder. Under a limit of 0 bytes for a file,
// the system refuses each write, as it does if the disk is full.
func TestAFullDiskLeavesNoSteps(t *testing.T) {
	var limit, none unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
	none.Max = limit.Max
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	dir := t.TempDir()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &none))
	file, err := Steps{}.file(dir)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	require.ErrorIs(t, err, unix.EFBIG)
	require.Nil(t, file)
	open, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range open {
		target, _ := os.Readlink(link)
		require.NotContains(t, target, dir)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestLastIsTheCallThatWasRead(t *testing.T) {
	ops := []trace.Op{{Kind: trace.Init, A: 640}, {Kind: trace.Create, A: 1, B: 5}, {Kind: trace.Append, A: 1, B: 7}, {Kind: trace.Free, A: 1}}
	steps, err := Steps{Traces: [][]trace.Op{ops}}.file(t.TempDir())
	require.NoError(t, err)
	defer steps.Close()
	const size = 24 // of struct step
	// The file has seven steps. Only the second to the fifth are calls. The others separate traces or end the file, so
	// last returns "" for them.
	for read, want := range []string{"", "", "llm_init", "create_sequence", "append_kv", "free_sequence", "", ""} {
		_, err := steps.Seek(int64(read)*size, io.SeekStart)
		require.NoError(t, err)
		require.Equal(t, want, last(steps), "after %d steps", read)
	}
}

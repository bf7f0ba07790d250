package jobs

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALogSaysThatADiskIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	l, err := OpenLog(t.TempDir(), "x", Shard{Index: 1, Of: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, l.file.Close())
	l.file = full
	require.ErrorIs(t, l.Append("a"), syscall.ENOSPC)
	require.NoError(t, l.Close())
}

// A process that is being started has every file of its parent until it executes its program.
func TestAClosedLogIsFreeWhileAProcessStarts(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		l, err := OpenLog(dir, "x", Shard{Index: 1, Of: 1}, nil)
		require.NoError(t, err)
		for _, f := range []*os.File{l.lock, l.file} {
			inherited, err := syscall.Dup(int(f.Fd()))
			require.NoError(t, err)
			t.Cleanup(func() { _ = syscall.Close(inherited) })
		}
		require.NoError(t, l.Close())
	}
}

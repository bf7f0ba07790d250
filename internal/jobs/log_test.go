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

package parallel

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestLeavingAProcessorKeepsWhereAThreadMayRun(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	if before.Count() < 2 {
		t.Skip("this process may run on one processor only")
	}
	from, err := processor()
	require.NoError(t, err)
	for now := from; now == from; { // Linux may move it back at once
		leaveProcessor()
		now, err = processor()
		require.NoError(t, err)
	}
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, before, after)
}

package parallel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAWaitingGoroutineLeavesTheProcessorOfAnother(t *testing.T) {
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if allowed.Count() < 2 {
		t.Skip("this process may run on one processor only")
	}
	b := NewBarrier(2)
	b.patience = time.Hour
	passed := make(chan struct{})
	go func() {
		b.Wait(0)
		close(passed)
	}()
	for b.arrived.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	before := b.seats[0].processor.Load()
	for b.seats[0].processor.Load() == before { // Linux may move it back at once
		b.seats[1].processor.Store(before)
		time.Sleep(time.Millisecond)
	}
	b.Wait(1)
	<-passed
}

package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWaitingGoroutineLeavesTheProcessorOfAnother(t *testing.T) {
	b := NewBarrier(2)
	left := 0
	b.leave = func() { left++ }
	b.sit(0)
	here := b.seats[0].processor.Load()
	require.GreaterOrEqual(t, here, int64(0))
	b.seats[1].processor.Store(here + 1)
	b.spread(0)
	require.Zero(t, left)
	b.seats[1].processor.Store(here)
	b.spread(0)
	b.spread(0) // not again at once
	require.Equal(t, 1, left)
}

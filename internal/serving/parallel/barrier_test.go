package parallel

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABarrierLetsNobodyPassBeforeAllHaveCome(t *testing.T) {
	for _, size := range []int{1, 2, 4, 16} {
		for _, sleeps := range []bool{false, true} {
			b := NewBarrier(size)
			if sleeps {
				b.patience = 0
			}
			const turns = 200
			var come atomic.Int64
			var early atomic.Bool
			var wait sync.WaitGroup
			for number := range size {
				wait.Go(func() {
					for turn := range int64(turns) {
						come.Add(1)
						b.Wait(number)
						if come.Load() < (turn+1)*int64(size) {
							early.Store(true)
						}
					}
				})
			}
			wait.Wait()
			require.False(t, early.Load(), "%d goroutines, sleeping %v", size, sleeps)
			require.EqualValues(t, turns*size, come.Load())
		}
	}
}

func TestAWaitingGoroutineLeavesTheProcessorOfAnother(t *testing.T) {
	b := NewBarrier(2)
	moves := 0
	b.move = func() { moves++ }
	b.noteProcessor(0)
	here := b.members[0].processor.Load()
	require.GreaterOrEqual(t, here, int64(0))
	b.members[1].processor.Store(here + 1)
	b.separate(0)
	require.Zero(t, moves)
	b.members[1].processor.Store(here)
	b.separate(0)
	b.separate(0) // not again at once
	require.Equal(t, 1, moves)
}

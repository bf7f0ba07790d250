package parallel_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/parallel"
)

type counts struct {
	done    []atomic.Int32
	workers []atomic.Int32
	bad     int // the task that panics, or -1
}

func (c *counts) Do(worker, i int) {
	if i == c.bad {
		panic("task")
	}
	c.done[i].Add(1)
	c.workers[worker].Add(1)
}

func newCounts(n, size int) *counts {
	return &counts{done: make([]atomic.Int32, n), workers: make([]atomic.Int32, size), bad: -1}
}

func TestEveryTaskIsDoneOnce(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		p, err := parallel.New(size)
		require.NoError(t, err)
		for _, n := range []int{0, 1, 2, 7, 1000} {
			for range 50 {
				c := newCounts(n, size)
				p.Run(n, c)
				for i := range c.done {
					require.EqualValues(t, 1, c.done[i].Load(), "size %d, task %d of %d", size, i, n)
				}
			}
		}
		p.Close()
	}
}

func TestSleepingWorkersAreWoken(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{2, 6} { // yielding, and not
		runtime.GOMAXPROCS(procs)
		p, err := parallel.New(2)
		require.NoError(t, err)
		for range 20 {
			time.Sleep(time.Millisecond)
			c := newCounts(7, 2)
			p.Run(7, c)
			for i := range c.done {
				require.EqualValues(t, 1, c.done[i].Load())
			}
		}
		p.Close()
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	p, err := parallel.New(3)
	require.NoError(t, err)
	defer p.Close()
	c := newCounts(100, 3)
	p.Run(100, c)
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Run(100, c) }))
}

func TestAPanicReachesTheCallerAndThePoolGoesOn(t *testing.T) {
	p, err := parallel.New(3)
	require.NoError(t, err)
	defer p.Close()
	for _, bad := range []int{0, 50, 99} {
		c := newCounts(100, 3)
		c.bad = bad
		require.PanicsWithValue(t, "task", func() { p.Run(100, c) })
	}
	c := newCounts(100, 3)
	p.Run(100, c)
	require.EqualValues(t, 1, c.done[99].Load())
}

func TestAPoolThatCannotBeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		cpus []int
	}{
		{"no worker", 0, nil},
		{"too few processors", 3, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parallel.New(c.size, c.cpus...)
			require.Error(t, err)
		})
	}
}

package parallel

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

type count struct{ done int }

func (c *count) Do(_, _ int) { c.done++ }

func TestARunDoesNotWaitForAWorkerThatHasNotBegun(t *testing.T) {
	p, err := New(1)
	require.NoError(t, err)
	late := &worker{pool: p, number: 1, cpu: -1, wake: make(chan struct{}, 1)} // its loop does not run yet
	p.size, p.workers = 2, []*worker{late}
	c := &count{}
	p.Run(10, c)
	require.Equal(t, 10, c.done)

	go late.loop(make(chan error, 1))
	for c := (&workers{}); c.late == 0; { // it takes part in later Runs
		p.Run(10, c)
	}
	p.Close()
}

func TestARunWaitsForBoundWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(1)
		require.NoError(t, err)
		late := &worker{pool: p, number: 1, cpu: -1, wake: make(chan struct{}, 1)}
		p.size, p.workers, p.bound, p.patience = 2, []*worker{late}, true, 0
		returned := make(chan struct{})
		go func() {
			p.Run(10, &count{})
			close(returned)
		}()
		synctest.Wait()
		select {
		case <-returned:
			require.Fail(t, "Run returned before the worker began")
		default:
		}
		p.patience = patience
		go late.loop(make(chan error, 1))
		<-returned
		p.Close()
	})
}

type workers struct{ early, late int }

func (w *workers) Do(worker, _ int) {
	if worker == 1 {
		w.late++
		return
	}
	w.early++
	time.Sleep(time.Microsecond)
}

func TestTheCallerMovesOnlyIfWorkersAreMissingAfterALongSleep(t *testing.T) {
	for _, c := range []struct {
		name    string
		slept   time.Duration
		missing bool
		moves   bool
	}{
		{"a worker that slept long does not come", time.Second, true, true},
		{"it comes", time.Second, false, false},
		{"a worker that slept briefly does not come", 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p placement
				p.woke(time.Now().Add(-c.slept))
				for range 3 {
					p.check(c.missing)
					time.Sleep(missingFor / 2)
				}
				require.Equal(t, c.moves, !p.moved.IsZero())
			})
		})
	}
}

// Ensure that the caller's thread is not moved if each Run ends before a worker can wake up. Such a Run does not show
// where the worker was placed.
func TestTheCallerStaysIfEachRunIsShorterThanWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placement
		for range 3 {
			p.woke(time.Now().Add(-longSleep))
			p.check(true)
			time.Sleep(2 * missingFor)
		}
		require.Zero(t, p.moved)
	})
}

func TestTheCallerOfAPoolBesideThreadsStays(t *testing.T) {
	for _, beside := range []bool{false, true} {
		p, err := NewBesideThreads(1)
		require.NoError(t, err)
		p.foreign = beside
		late := &worker{pool: p, number: 1, cpu: -1, wake: make(chan struct{}, 1)}
		p.size, p.workers = 2, []*worker{late}
		p.caller = placement{moves: maxMoves, missing: time.Now().Add(-time.Second)}
		p.Run(10, &count{})
		require.Equal(t, beside, p.caller.moved.IsZero())
	}
	p, err := NewBesideThreads(1)
	require.NoError(t, err)
	require.True(t, p.foreign)
}

func TestTheCallerMovesAFewTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placement
		p.woke(time.Now().Add(-longSleep))
		var moves []time.Time
		for range 100 {
			p.check(true)
			if p.moved != (time.Time{}) && (len(moves) == 0 || p.moved != moves[len(moves)-1]) {
				moves = append(moves, p.moved)
			}
			time.Sleep(betweenMoves / 4)
		}
		require.Len(t, moves, maxMoves)
		for i := range moves[1:] {
			require.GreaterOrEqual(t, moves[i+1].Sub(moves[i]), betweenMoves)
		}
	})
}

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

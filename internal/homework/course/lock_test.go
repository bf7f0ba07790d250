package course

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that two goroutines never hold the lock at the same time, even while the lock changes into an ordinary mutex.
// It changes when the second goroutine takes it for the first time. The owner keeps locking and unlocking meanwhile.
func TestALockExcludesWhileItsOwnershipEnds(t *testing.T) {
	level.SkipQuick(t)
	const times = 20
	rounds := level.Pick(300, 1000)
	for range rounds {
		var l lock
		inside, total := 0, 0
		enter := func() {
			l.Lock()
			inside++
			if inside != 1 {
				t.Error("two are inside")
			}
			total++
			inside--
			l.Unlock()
		}
		var group sync.WaitGroup
		var stop atomic.Bool
		entered := 0
		started := make(chan struct{})
		group.Go(func() {
			for ; !stop.Load(); entered++ {
				if enter(); entered == 0 {
					close(started)
				}
			}
		})
		<-started
		for range times {
			enter()
		}
		stop.Store(true)
		group.Wait()
		require.Equal(t, times+entered, total)
	}
}

// Threads, not only goroutines, as the library's callers are.
func TestManyThreadsOnOneEngine(t *testing.T) {
	b := newBench(t)
	e, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	require.NoError(t, err)
	var group sync.WaitGroup
	for thread := range int32(8) {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range int32(200) {
				id := thread*1000 + i%20
				if _, err := b.library.Create(e, id, 3); err == nil {
					_, _ = b.library.Fork(e, id, id+500)
				}
				_ = b.library.Append(e, id, i)
				_ = b.library.Append(e, id+500, i)
				if i%3 == 0 {
					_ = b.library.Free(e, id)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, e.Check())
	require.NoError(t, b.library.Destroy(e))
	require.Empty(t, b.arena.live)
}

func TestThreadsWithAnEngineEach(t *testing.T) {
	b := newBench(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			pool := make([]int32, 64*KVPerBlock)
			e, err := b.library.Init(unsafe.Pointer(&pool[0]), 64*BlockSize)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range int32(30) {
				_, _ = b.library.Create(e, i, 20)
			}
			for i := range int32(3000) {
				_ = b.library.Append(e, i%30, i)
			}
			if err := e.Check(); err != nil {
				t.Error(err)
			}
			_ = b.library.Destroy(e)
			runtime.KeepAlive(pool)
		})
	}
	group.Wait()
	require.Empty(t, b.arena.live)
	require.False(t, b.library.index.nonEmpty())
}

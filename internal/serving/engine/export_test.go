package engine

import (
	"runtime"
	"sync"
	"time"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
)

// SetAfter replaces the clock that measures idle times.
func SetAfter(f func(d time.Duration, g func()) (stop func() bool)) (restore func()) {
	before := after
	after = f
	return func() { after = before }
}

// AwaitSleepers waits until n calls of Sleep wait for the engine to fall asleep.
func AwaitSleepers(e *Engine, n int) {
	for {
		e.mu.Lock()
		now := e.sleep.wanted
		e.mu.Unlock()
		if now == n {
			return
		}
		runtime.Gosched()
	}
}

// HandBuilt returns the hand-built model, which all tests share because engines only read it.
var HandBuilt = sync.OnceValues(func() (*model.Model, error) {
	pool, err := parallel.New(1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return induction.New(pool, model.Part{})
})

package engine

import (
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

// HandBuilt returns the hand-built model, which all tests share because engines only read it.
var HandBuilt = sync.OnceValues(func() (*model.Model, error) {
	pool, err := parallel.New(1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return induction.New(pool, model.Part{})
})

package engine

import (
	"sync"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
)

// MaxLogits is the number of rows of logits that the engine keeps at a time.
const MaxLogits = maxLogits

// HandBuilt returns the hand-built model, which all tests share because engines only read it.
var HandBuilt = sync.OnceValues(func() (*model.Model, error) {
	pool, err := parallel.New(1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return induction.New(pool, model.Part{})
})

package engine

import (
	"sync"

	"llmmemory/internal/model"
	"llmmemory/internal/model/induction"
	"llmmemory/internal/parallel"
)

// MaxLogits is how many rows of logits are held at a time.
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

package main

/*
#include "translate.h"
*/
import "C"

import (
	"runtime"
	"sync"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/parallel"
)

// A computer is threads and what they need to attend and to write.
type computer struct {
	mu     sync.Mutex // held by every call
	runner *attention.Runner
	writer *kvstore.Writer
	pool   *parallel.Pool
}

const mostThreads = 256

// computers are the pools by number of threads. Calls that ask for the same number share one, in turn.
var computers struct {
	sync.Mutex
	of [mostThreads + 1]*computer
}

// compute runs f with that many threads. A panic does not leave it.
func compute(threads C.int32_t, f func(c *computer) error) C.int {
	c, err := computerOf(threads)
	if err != nil {
		return status(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return status(guarded(func() error { return f(c) }))
}

// guarded turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = internal(p)
		}
	}()
	return f()
}

func computerOf(threads C.int32_t) (*computer, error) {
	n, err := threadCount(threads)
	if err != nil {
		return nil, err
	}
	computers.Lock()
	defer computers.Unlock()
	if computers.of[n] == nil {
		made, err := newComputer(n)
		if err != nil {
			return nil, err
		}
		computers.of[n] = made
	}
	return computers.of[n], nil
}

func newComputer(threads int) (*computer, error) {
	pool, err := parallel.New(threads)
	if err != nil {
		return nil, err
	}
	return &computer{runner: attention.NewRunner(pool), writer: kvstore.NewWriter(pool), pool: pool}, nil
}

// threadCount is one for each processor if none is asked for.
func threadCount(threads C.int32_t) (int, error) {
	if threads < 0 || threads > mostThreads {
		return 0, fail(C.LLM_CACHE_E_RANGE, "%d threads: want 0 to %d", threads, mostThreads)
	}
	if threads == 0 {
		return min(runtime.NumCPU(), mostThreads), nil
	}
	return int(threads), nil
}

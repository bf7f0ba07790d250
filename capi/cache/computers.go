package main

/*
#include "translate.h"
*/
import "C"

import (
	"runtime"
	"sync"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
)

// A computer computes attention and writes keys and values with a pool of threads.
type computer struct {
	mu     sync.Mutex // held by every call that uses the computer without a store
	closed bool       // a call panicked
	runner *attention.Runner
	writer *kvstore.Writer
	copier *kvstore.Copier
	pool   *parallel.Pool
}

const maxThreads = 256

// computers has a computer for each number of threads. Calls with the same number of threads wait for each other and
// use the same computer.
var computers struct {
	sync.Mutex
	byThreads [maxThreads + 1]*computer
}

// compute runs f on the computer with the given number of threads and returns the error of f as a code. After a panic
// of f, compute recovers, and the next call gets a new computer.
func compute(threads C.int32_t, f func(c *computer) error) C.int {
	n, err := threadCount(threads)
	if err != nil {
		return status(err)
	}
	c, err := lockComputer(n)
	if err != nil {
		return status(err)
	}
	defer c.mu.Unlock()
	return status(c.run(n, f))
}

func (c *computer) run(threads int, f func(c *computer) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.close(threads)
			err = internal(p)
		}
	}()
	return f(c)
}

// close ends the threads of c. Later calls get a new computer.
func (c *computer) close(threads int) {
	computers.Lock()
	computers.byThreads[threads] = nil
	computers.Unlock()
	c.closed = true
	c.pool.Close()
}

func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = internal(p)
		}
	}()
	return f()
}

func lockComputer(threads int) (*computer, error) {
	for {
		c, err := computerOf(threads)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		if !c.closed {
			return c, nil
		}
		c.mu.Unlock()
	}
}

func computerOf(threads int) (*computer, error) {
	computers.Lock()
	defer computers.Unlock()
	if computers.byThreads[threads] == nil {
		made, err := newComputer(threads)
		if err != nil {
			return nil, err
		}
		computers.byThreads[threads] = made
	}
	return computers.byThreads[threads], nil
}

func newComputer(threads int) (*computer, error) {
	pool, err := parallel.NewBesideThreads(threads)
	if err != nil {
		return nil, err
	}
	return &computer{runner: attention.NewRunner(pool), writer: kvstore.NewWriter(pool), copier: kvstore.NewCopier(pool), pool: pool}, nil
}

// threadCount returns the number of threads that the caller asks for. 0 means one for each processor.
func threadCount(threads C.int32_t) (int, error) {
	if threads < 0 || threads > maxThreads {
		return 0, fail(C.LLM_CACHE_E_RANGE, "%d threads: want 0 to %d", threads, maxThreads)
	}
	if threads == 0 {
		return min(runtime.NumCPU(), maxThreads), nil
	}
	return int(threads), nil
}

package main

/*
#include "translate.h"
*/
import "C"

import (
	"sync"

	"llmmemory/internal/vllm/v1/handle"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/pool"
	"llmmemory/internal/vllm/v1/sched"
)

// A cache is the object of a handle.
type cache struct {
	mu     sync.Mutex // held by every call
	s      *sched.Scheduler
	tag    sched.ID // of its requests; see public
	groups int
	blocks int

	closed bool
	broken bool // a call panicked

	step  sched.Step
	rows  []int           // of the steps in flight, the oldest first
	kept  bool            // step, the newest, has not been handed out
	loads []sched.Loading // of a step that failed before it was handed out
	ids   []sched.ID
	out   sched.Outcome

	failed sched.FailedLoad

	events     pool.Events
	keptEvents bool
	batch      []byte
	layers     []kvcache.Group
	table      []int32
}

// caches are the open caches.
var caches struct {
	sync.RWMutex
	table handle.Table[cache]
	tags  [C.LLM_CACHE_MAX_OPEN + 1]bool // in use; 0 never is
	last  int
}

// enter gives c a handle, and a tag that no other open cache has and that was
// given to another cache as long ago as possible.
func enter(c *cache) (C.llm_cache, error) {
	caches.Lock()
	defer caches.Unlock()
	if caches.table.Len() == C.LLM_CACHE_MAX_OPEN {
		return 0, fail(C.LLM_CACHE_E_LIMIT, "%d caches are open", C.LLM_CACHE_MAX_OPEN)
	}
	for {
		caches.last = caches.last%C.LLM_CACHE_MAX_OPEN + 1
		if !caches.tags[caches.last] {
			break
		}
	}
	caches.tags[caches.last] = true
	c.tag = sched.ID(caches.last)
	return C.llm_cache(caches.table.Add(c)), nil
}

// leave removes the handle of a cache.
func leave(h C.llm_cache) (*cache, error) {
	caches.Lock()
	defer caches.Unlock()
	c := caches.table.Get(uint64(h))
	if c == nil {
		return nil, unknown(h)
	}
	caches.table.Remove(uint64(h))
	caches.tags[c.tag] = false
	return c, nil
}

func unknown(h C.llm_cache) error {
	return fail(C.LLM_CACHE_E_HANDLE, "no open cache has the handle %#x", uint64(h))
}

// with runs f on the cache of a handle, under its lock. It recovers from panics.
func with(h C.llm_cache, f func(c *cache) error) C.int {
	caches.RLock()
	c := caches.table.Get(uint64(h))
	caches.RUnlock()
	if c == nil {
		return status(unknown(h))
	}
	return status(c.run(h, f))
}

func (c *cache) run(h C.llm_cache, f func(c *cache) error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return unknown(h)
	case c.broken:
		return internal("an earlier call failed")
	}
	defer func() {
		if p := recover(); p != nil {
			c.broken = true
			err = internal(p)
		}
	}()
	return f(c)
}

// tagShift is the place of a cache's tag in the ids of its requests; the lower bits are the place of
// the request, below LLM_CACHE_MAX_REQUESTS. So requests of different open caches have different ids.
const tagShift = 20

// public is the id that C knows a request by.
func (c *cache) public(id sched.ID) C.llm_request { return C.llm_request(id | c.tag<<tagShift) }

// private is the scheduler's id of a request, if the id can belong to this cache.
func (c *cache) private(id C.llm_request) (sched.ID, error) {
	if sched.ID(uint32(id)>>tagShift) != c.tag {
		return 0, fail(C.LLM_CACHE_E_REQUEST, "the id %#x is not of this cache", uint64(id))
	}
	return sched.ID(id) &^ (C.LLM_CACHE_MAX_OPEN << tagShift), nil
}

// live is private for a request that has not finished.
func (c *cache) live(id C.llm_request) (sched.ID, error) {
	inside, err := c.known(id)
	if err == nil && !c.s.Monitor.Live(inside) {
		err = fail(C.LLM_CACHE_E_REQUEST, "the request %#x has finished", uint64(id))
	}
	return inside, err
}

// known is private for a request that has or can have blocks.
func (c *cache) known(id C.llm_request) (sched.ID, error) {
	inside, err := c.private(id)
	if err != nil {
		return 0, err
	}
	if _, _, err := c.s.Monitor.NumComputedTokens(inside); err != nil {
		return 0, fail(C.LLM_CACHE_E_REQUEST, "the request %#x has finished", uint64(id))
	}
	return inside, nil
}

// checkLimit returns an error if there is no id for one more request.
func (c *cache) checkLimit() error {
	load := c.s.Monitor.Load()
	if n := load.Running + load.Waiting + load.Parked; n >= C.LLM_CACHE_MAX_REQUESTS {
		return fail(C.LLM_CACHE_E_LIMIT, "the cache has %d live requests", n)
	}
	return nil
}

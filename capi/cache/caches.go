package main

/*
#include "translate.h"
*/
import "C"

import (
	"sync"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// objects are the open caches or the open stores, by handle.
type objects[T any] struct {
	name string // their name in errors
	sync.RWMutex
	table reqtable.Handles[object[T]]
}

type object[T any] struct {
	sync.Mutex // held by every call
	value      *T
	closed     bool
	broken     bool // a call panicked
}

// use runs f on the object of a handle. It returns the error of f as a code, or the code of an error about the handle.
// While f runs, no other call can use the object. After a panic of f, the object can only be closed.
func (o *objects[T]) use(h C.uint64_t, f func(*T) error) C.int {
	return status(o.find(h, f))
}

func (o *objects[T]) find(h C.uint64_t, f func(*T) error) (err error) {
	o.RLock()
	x := o.table.Get(uint64(h))
	o.RUnlock()
	if x == nil {
		return o.unknown(h)
	}
	x.Lock()
	defer x.Unlock()
	switch {
	case x.closed:
		return o.unknown(h)
	case x.broken:
		return internal("an earlier call failed")
	}
	defer func() {
		if p := recover(); p != nil {
			x.broken = true
			err = internal(p)
		}
	}()
	return f(x.value)
}

func (o *objects[T]) unknown(h C.uint64_t) error {
	return fail(C.LLM_CACHE_E_HANDLE, "no open %s has the handle %#x", o.name, uint64(h))
}

func (o *objects[T]) add(value *T) C.uint64_t {
	o.Lock()
	defer o.Unlock()
	return C.uint64_t(o.table.Add(&object[T]{value: value}))
}

// remove removes a handle and returns its object. It waits until no call uses the object any more.
func (o *objects[T]) remove(h C.uint64_t) (*T, error) {
	o.Lock()
	x := o.table.Get(uint64(h))
	o.table.Remove(uint64(h))
	o.Unlock()
	if x == nil {
		return nil, o.unknown(h)
	}
	x.Lock()
	defer x.Unlock()
	value := x.value
	x.value, x.closed = nil, true // a call that waits for the lock still has x
	return value, nil
}

// A cache is the object of a handle of llm_cache.h.
type cache struct {
	s      *sched.Scheduler
	tag    sched.ID // tag in the ids of its requests; see public
	groups int
	blocks int

	step  sched.Step
	rows  []int           // number of rows of the steps in flight, the oldest first
	kept  bool            // step, the newest, has not been returned to the caller
	loads []sched.Loading // loads of a step that failed before it was returned
	freed []byte          // hashes of outputs to drop, each with a final 0
	ids   []sched.ID
	out   sched.Outcome

	failed sched.FailedLoad

	events        pool.Events
	hasKeptEvents bool
	batch         []byte
	layers        []kvcache.Group
	table         []int32
}

var caches = objects[cache]{name: "cache"}

// tags has the tags of open caches. 0 is never used.
var tags struct {
	sync.Mutex
	used [C.LLM_CACHE_MAX_OPEN + 1]bool
	n    int
	last int
}

// enter gives c a handle and a tag. The tag is not in use by an open cache. If several are free, enter takes the next one
// after the tag that it assigned last; the first tag follows the last one.
func enter(c *cache) (C.llm_cache, error) {
	tags.Lock()
	defer tags.Unlock()
	if tags.n == C.LLM_CACHE_MAX_OPEN {
		return 0, fail(C.LLM_CACHE_E_LIMIT, "%d caches are open", tags.n)
	}
	tags.n++
	for {
		tags.last = tags.last%C.LLM_CACHE_MAX_OPEN + 1
		if !tags.used[tags.last] {
			break
		}
	}
	tags.used[tags.last] = true
	c.tag = sched.ID(tags.last)
	return caches.add(c), nil
}

func leave(h C.llm_cache) (*cache, error) {
	c, err := caches.remove(h)
	if err == nil {
		tags.Lock()
		defer tags.Unlock()
		tags.used[c.tag] = false
		tags.n--
	}
	return c, err
}

// tagShift is the position of the tag of a cache in the ids of its requests. The bits below tagShift are the index of
// the request, which is less than LLM_CACHE_MAX_REQUESTS. With the tag, requests of different open caches have
// different ids.
const tagShift = 20

// public returns the id by which C knows a request.
func (c *cache) public(id sched.ID) C.llm_request { return C.llm_request(id | c.tag<<tagShift) }

// private returns the scheduler's id for a request id of C. It returns an error if the id has the tag of another
// cache.
func (c *cache) private(id C.llm_request) (sched.ID, error) {
	if sched.ID(uint32(id)>>tagShift) != c.tag {
		return 0, fail(C.LLM_CACHE_E_REQUEST, "the id %#x is not of this cache", uint64(id))
	}
	return sched.ID(id) &^ (C.LLM_CACHE_MAX_OPEN << tagShift), nil
}

// live does the same as private, but also returns an error if the request has finished.
func (c *cache) live(id C.llm_request) (sched.ID, error) {
	request, err := c.private(id)
	if err == nil && !c.s.Monitor.Live(request) {
		err = finished(id)
	}
	return request, err
}

func finished(id C.llm_request) error {
	return fail(C.LLM_CACHE_E_REQUEST, "the request %#x has finished", uint64(id))
}

// checkLimit returns an error if the cache already has LLM_CACHE_MAX_REQUESTS requests.
func (c *cache) checkLimit() error {
	load := c.s.Monitor.Load()
	if n := load.Running + load.Waiting + load.Parked; n >= C.LLM_CACHE_MAX_REQUESTS {
		return fail(C.LLM_CACHE_E_LIMIT, "the cache has %d live requests", n)
	}
	return nil
}

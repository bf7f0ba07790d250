package sched

import (
	"errors"
	"fmt"
)

// ErrBroken is wrapped by every finding of Check that is not the cache's.
var ErrBroken = errors.New("scheduler is broken")

// Check walks over the whole state: the cache is sound; every request is in
// exactly one queue; only running ones have blocks.
func (s *Scheduler) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cache.Check(); err != nil {
		return err
	}
	if len(s.running) > s.config.MaxNumSeqs {
		return fmt.Errorf("%w: %d requests run, %d may", ErrBroken, len(s.running), s.config.MaxNumSeqs)
	}
	seen := map[ID]bool{}
	for _, r := range s.running {
		if r.status != running || seen[r.id] || s.requests.Get(uint64(r.id)) != r {
			return fmt.Errorf("%w: request %#x runs, with status %d", ErrBroken, uint64(r.id), r.status)
		}
		seen[r.id] = true
	}
	for _, id := range s.queue.list(nil) {
		r := s.requests.Get(uint64(id))
		if r == nil || r.status == running || seen[id] {
			return fmt.Errorf("%w: request %#x waits, but should not", ErrBroken, uint64(id))
		}
		seen[id] = true
		for g := range s.batch.groups {
			if len(r.kv.Table(g)) > 0 {
				return fmt.Errorf("%w: request %#x waits with %d blocks", ErrBroken, uint64(id), len(r.kv.Table(g)))
			}
		}
	}
	if n := s.requests.Len(); n != len(seen) {
		return fmt.Errorf("%w: there are %d requests, %d in the queues", ErrBroken, n, len(seen))
	}
	return s.checkHeap()
}

func (s *Scheduler) checkHeap() error {
	for i := 1; i < len(s.queue.heap); i++ {
		if s.queue.heap[i].before(s.queue.heap[(i-1)/2]) {
			return fmt.Errorf("%w: the heap is out of order at %d", ErrBroken, i)
		}
	}
	return nil
}

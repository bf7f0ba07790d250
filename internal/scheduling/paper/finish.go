package paper

import (
	"fmt"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
)

// Finish implements serve.Scheduler. It frees running requests in the order of the running queue.
func (s *Scheduler) Finish(answered []int, ids ...int) ([]int, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	if err := s.requests.TakeAll(ids, s.queues[:], s.forget); err != nil {
		return answered, fmt.Errorf("%w: %w", serve.ErrRequest, err)
	}
	return append(answered, ids...), nil
}

// Refork implements serve.GroupScheduler. Orca copies all of the parent's blocks that have tokens at once. In the paper's system both
// sequences share the blocks, and a block is copied when one of them writes to it.
func (s *Scheduler) Refork(it *serve.Iteration, id, child, parent int) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	q, err := s.sequence(id, child)
	if err != nil {
		return err
	}
	if _, err := s.sequence(id, parent); err != nil {
		return err
	}
	return s.memory.refork(it, q, child, parent)
}

// sequence returns the request with the id, or an error if there is no such request or it has no such sequence.
func (s *Scheduler) sequence(id, sequence int) (*request, error) {
	index := s.requests.Find(id)
	if index == reqtable.None {
		return nil, fmt.Errorf("%w: there is no request %d", serve.ErrRequest, id)
	}
	q := s.requests.At(index)
	if sequence < 0 || sequence >= len(q.Seqs) {
		return nil, fmt.Errorf("%w %d: there is no sequence %d", serve.ErrRequest, id, sequence)
	}
	return q, nil
}

func (s *Scheduler) forget(index int32) {
	q := s.requests.At(index)
	for i := range q.Seqs {
		s.memory.free(q, i)
	}
	s.requests.Remove(q.id)
}

// Usage implements serve.Scheduler.
func (s *Scheduler) Usage() serve.Usage { return s.memory.usage() }

// Table returns the block table of a sequence, or nil if the sequence has none. The caller must not change the table,
// which is valid until the next call of a method of s.
func (s *Scheduler) Table(id, sequence int) []int32 {
	q, err := s.sequence(id, sequence)
	if err != nil {
		return nil
	}
	return s.memory.table(q, sequence)
}

// Counts returns the reference counts of all blocks, which the caller must not change. Orca has no reference counts.
func (s *Scheduler) Counts() (gpu, cpu []int32) { return s.memory.counts() }

// Queues returns the ids of the requests in each queue, in order.
func (s *Scheduler) Queues() (waiting, running, swapped []int) {
	id := func(index int32) int { return s.requests.At(index).id }
	return s.waiting.IDs(id), s.running.IDs(id), s.swapped.IDs(id)
}

// Check returns an error if the memory is inconsistent, if a request is not in exactly one queue, or if waiting or
// swapped requests are not in the order of arrival. The requests in the queue s.swapped must have their blocks on the
// CPU. No other request may have blocks on the CPU.
func (s *Scheduler) Check() error {
	if n := s.waiting.Len() + s.running.Len() + s.swapped.Len(); n != s.requests.Len() {
		return invariants.Broken("%d requests are in queues, there are %d", n, s.requests.Len())
	}
	for id, index := range s.requests.All() {
		q := s.requests.At(index)
		if q.id != id || q.running() == 0 || q.swapped != s.swapped.Has(index) {
			return invariants.Broken("request %d at the index of %d has %d sequences, swapped out: %t, in that queue: %t",
				q.id, id, q.running(), q.swapped, s.swapped.Has(index))
		}
	}
	for _, q := range []*reqtable.Queue{s.waiting, s.swapped} {
		for index := range q.All() {
			if next := q.Next(index); next != reqtable.None && s.requests.At(next).arrival < s.requests.At(index).arrival {
				return invariants.Broken("request %d is in front of one that came before", s.requests.At(index).id)
			}
		}
	}
	return s.memory.check(s)
}

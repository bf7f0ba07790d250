package sched

import (
	"cmp"
	"slices"
)

// A queue has waiting requests in the order in which they are admitted: FCFS as they were pushed, with
// priorities the most important one first. Places before first are free, so requests leave and return
// at the front without moving the others. With FCFS, a request that leaves from the middle leaves its place free.
type queue struct {
	policy Policy
	list   []*request // nil: a free place
	first  int
	free   int
}

// all returns the requests in order.
func (q *queue) all() []*request { return withoutFree(slices.Clone(q.list)) }

func withoutFree(list []*request) []*request {
	return slices.DeleteFunc(list, func(r *request) bool { return r == nil })
}

// head is the next request to admit, or nil.
func (q *queue) head() *request {
	if q.first == len(q.list) {
		return nil
	}
	return q.list[q.first]
}

// push adds r at the end; with priorities, at its place.
func (q *queue) push(r *request) {
	at := len(q.list)
	if q.policy == Priority {
		at = q.search(r)
	}
	if at == q.first && len(q.list) > 0 {
		q.putFirst(r)
		return
	}
	if len(q.list) == cap(q.list) && 2*q.free > len(q.list) {
		at -= q.free // all of them are before it
		q.list, q.first, q.free = withoutFree(q.list), 0, 0
		q.number()
	}
	q.list = slices.Insert(q.list, at, r)
	r.in, r.place = q, at
}

// pushFront adds r, which was preempted or skipped, at the front. With priorities that is push.
func (q *queue) pushFront(r *request) {
	if q.policy == Priority || len(q.list) == 0 {
		q.push(r)
	} else {
		q.putFirst(r)
	}
}

func (q *queue) putFirst(r *request) {
	if q.first == 0 { // room for more, so that many at the front do not move the others each
		q.first = len(q.list)/2 + 8
		q.free += q.first
		q.list = slices.Insert(q.list, 0, make([]*request, q.first)...)
		q.number()
	}
	q.first--
	q.free--
	q.list[q.first] = r
	r.in, r.place = q, q.first
}

// number sets the place of each request after they have moved.
func (q *queue) number() {
	for i, r := range q.list {
		if r != nil {
			r.place = i
		}
	}
}

func (q *queue) remove(r *request) {
	r.in = nil
	at := r.place
	if q.policy == Priority {
		if at = q.search(r); at > q.first {
			q.list = slices.Delete(q.list, at, at+1)
			return
		}
	}
	q.list[at] = nil
	q.free++
	for q.first < len(q.list) && q.list[q.first] == nil {
		q.first++
	}
}

// search returns the place of r in a queue with priorities.
func (q *queue) search(r *request) int {
	at, _ := slices.BinarySearchFunc(q.list[q.first:], r, compare)
	return q.first + at
}

// compare orders by priority, arrival and name (vllm/v1/RULES.md §14); requests without
// different names by the order in which they were added.
func compare(r, o *request) int {
	return cmp.Or(
		cmp.Compare(r.priority, o.priority), cmp.Compare(r.arrival, o.arrival),
		cmp.Compare(r.name, o.name), cmp.Compare(r.seq, o.seq),
	)
}

func (r *request) before(o *request) bool { return compare(r, o) < 0 }

package sched

import (
	"cmp"
	"slices"
)

// A queue has waiting requests in the order in which they are admitted: FCFS as they were pushed, with
// priorities the most important one first. Places before first are free, so requests leave and return
// at the front without moving the others.
type queue struct {
	policy Policy
	list   []*request
	first  int
}

func (q *queue) all() []*request { return q.list[q.first:] }

// head is the next request to admit, or nil.
func (q *queue) head() *request {
	if q.first == len(q.list) {
		return nil
	}
	return q.list[q.first]
}

// push adds r at the end; with priorities, at its place.
func (q *queue) push(r *request) {
	at := len(q.all())
	if q.policy == Priority {
		at, _ = slices.BinarySearchFunc(q.all(), r, compare)
	}
	q.insert(at, r)
}

// pushFront adds r, which was preempted or skipped, at the front. With priorities that is push.
func (q *queue) pushFront(r *request) {
	if q.policy == Priority {
		q.push(r)
	} else {
		q.insert(0, r)
	}
}

// insert adds r behind the first at requests.
func (q *queue) insert(at int, r *request) {
	r.in = q
	if at == 0 && len(q.list) > 0 {
		if q.first == 0 { // room for more, so that many at the front do not move the others each
			q.first = len(q.list)/2 + 8
			q.list = slices.Insert(q.list, 0, make([]*request, q.first)...)
		}
		q.first--
		q.list[q.first] = r
		return
	}
	if len(q.list) == cap(q.list) && 2*q.first > len(q.list) {
		q.list, q.first = slices.Delete(q.list, 0, q.first), 0
	}
	q.list = slices.Insert(q.list, q.first+at, r)
}

func (q *queue) remove(r *request) {
	r.in = nil
	if q.head() == r {
		q.list[q.first] = nil
		q.first++
		return
	}
	at := q.first + slices.Index(q.all(), r)
	q.list = slices.Delete(q.list, at, at+1)
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

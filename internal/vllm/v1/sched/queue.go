package sched

import (
	"container/heap"
	"slices"
)

// A queue of waiting requests: a linked list for FCFS, a heap for priorities.
type queue struct {
	policy Policy
	ring   request // sentinel
	heap   byImportance
}

func (q *queue) init(p Policy) {
	q.policy = p
	q.ring.next, q.ring.prev = &q.ring, &q.ring
}

// head is the next request to admit, or nil.
func (q *queue) head() *request {
	if q.policy == Priority {
		if len(q.heap) == 0 {
			return nil
		}
		return q.heap[0]
	}
	if q.ring.next == &q.ring {
		return nil
	}
	return q.ring.next
}

// push adds r at the end.
func (q *queue) push(r *request) {
	r.in = q
	if q.policy == Priority {
		heap.Push(&q.heap, r)
		return
	}
	link(r, q.ring.prev)
}

// pushFront adds r, which was preempted, at the front. With priorities that is push.
func (q *queue) pushFront(r *request) {
	r.in = q
	if q.policy == Priority {
		q.push(r)
		return
	}
	link(r, &q.ring)
}

func link(r, at *request) {
	r.next, r.prev = at.next, at
	at.next.prev = r
	at.next = r
}

func (q *queue) remove(r *request) {
	r.in = nil
	if q.policy != Priority {
		r.prev.next, r.next.prev = r.next, r.prev
		r.next, r.prev = nil, nil
		return
	}
	heap.Remove(&q.heap, slices.Index(q.heap, r))
}

// before orders by priority, arrival and name (vllm/v1/RULES.md §14); requests without
// different names by the order in which they were added.
func (r *request) before(o *request) bool {
	switch {
	case r.priority != o.priority:
		return r.priority < o.priority
	case r.arrival != o.arrival:
		return r.arrival < o.arrival
	case r.name != o.name:
		return r.name < o.name
	}
	return r.seq < o.seq
}

// A byImportance is a heap of requests for package container/heap.
type byImportance []*request

func (h byImportance) Len() int           { return len(h) }
func (h byImportance) Less(i, j int) bool { return h[i].before(h[j]) }
func (h byImportance) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byImportance) Push(r any)        { *h = append(*h, r.(*request)) }

func (h *byImportance) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = slices.Delete(*h, last, last+1)
	return r
}

// appendTo appends the requests in the order in which they would be admitted.
func (q *queue) appendTo(dst []*request) []*request {
	if q.policy == Priority {
		start := len(dst)
		dst = append(dst, q.heap...)
		sortByImportance(dst[start:])
		return dst
	}
	for r := q.ring.next; r != &q.ring; r = r.next {
		dst = append(dst, r)
	}
	return dst
}

func sortByImportance(list []*request) {
	slices.SortFunc(list, func(a, b *request) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
}

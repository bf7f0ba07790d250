package sched

import "slices"

// A queue holds the waiting requests: a ring of links for FCFS, a heap for
// priorities.
type queue struct {
	policy Policy
	ring   request // sentinel
	heap   []*request
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
		q.heap = append(q.heap, r)
		q.up(len(q.heap) - 1)
		return
	}
	link(r, q.ring.prev)
}

// pushFront adds r, which was preempted, at the front. Priorities know no front.
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
	at := slices.Index(q.heap, r)
	last := len(q.heap) - 1
	q.heap[at] = q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	if at < last {
		q.down(at)
		q.up(at)
	}
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

func (q *queue) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !q.heap[at].before(q.heap[parent]) {
			return
		}
		q.heap[at], q.heap[parent] = q.heap[parent], q.heap[at]
		at = parent
	}
}

func (q *queue) down(at int) {
	for {
		child := 2*at + 1
		if child >= len(q.heap) {
			return
		}
		if child+1 < len(q.heap) && q.heap[child+1].before(q.heap[child]) {
			child++
		}
		if !q.heap[child].before(q.heap[at]) {
			return
		}
		q.heap[at], q.heap[child] = q.heap[child], q.heap[at]
		at = child
	}
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

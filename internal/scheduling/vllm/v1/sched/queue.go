package sched

import (
	"slices"
	"sort"
)

// A queue has waiting requests in the order of their admission. The indexes of list before firstUsed are free, so that
// requests leave and return at the front without moving other requests. If order.less is nil, the index of a request
// that leaves from the middle stays free, too.
type queue struct {
	order     *order
	list      []*request // nil: a free index
	firstUsed int
	free      int // number of free indexes
}

func (q *queue) all() []*request { return withoutFree(slices.Clone(q.list)) }

func withoutFree(list []*request) []*request {
	return slices.DeleteFunc(list, func(r *request) bool { return r == nil })
}

// head returns the first request, or nil.
func (q *queue) head() *request {
	if q.firstUsed == len(q.list) {
		return nil
	}
	return q.list[q.firstUsed]
}

// push adds r in the order of order.less. r comes after all requests that are equal to r in this order.
func (q *queue) push(r *request) {
	q.insert(r, q.search(func(o *request) bool { return q.order.precedes(r, o) }))
}

// pushFront adds r in the order of order.less. r was preempted or skipped, or the step that admitted r has failed. r
// comes before all requests that are equal to r in this order.
func (q *queue) pushFront(r *request) {
	q.insert(r, q.search(func(o *request) bool { return !q.order.precedes(o, r) }))
}

// search returns the index of the first request for which f is true. f must be true for all requests after that one.
func (q *queue) search(f func(*request) bool) int {
	return q.firstUsed + sort.Search(len(q.list)-q.firstUsed, func(i int) bool { return f(q.list[q.firstUsed+i]) })
}

func (q *queue) insert(r *request, index int) {
	if index == q.firstUsed && len(q.list) > 0 {
		q.putFirst(r)
		return
	}
	if len(q.list) == cap(q.list) && 2*q.free > len(q.list) {
		index -= q.free // all of them are before it
		q.list, q.firstUsed, q.free = withoutFree(q.list), 0, 0
		q.number()
	}
	q.list = slices.Insert(q.list, index, r)
	r.queue, r.index = q, index
}

func (q *queue) putFirst(r *request) {
	if q.firstUsed == 0 { // make many free indexes, so that few calls move the other requests
		q.firstUsed = len(q.list)/2 + 8
		q.free += q.firstUsed
		q.list = slices.Insert(q.list, 0, make([]*request, q.firstUsed)...)
		q.number()
	}
	q.firstUsed--
	q.free--
	q.list[q.firstUsed] = r
	r.queue, r.index = q, q.firstUsed
}

// number sets request.index after requests have moved.
func (q *queue) number() {
	for i, r := range q.list {
		if r != nil {
			r.index = i
		}
	}
}

func (q *queue) remove(r *request) {
	r.queue = nil
	index := r.index
	if q.order.less != nil { // index is out of date if requests were inserted before r
		index = q.search(func(o *request) bool { return !q.order.precedes(o, r) })
		for q.list[index] != r {
			index++
		}
		if index > q.firstUsed {
			q.list = slices.Delete(q.list, index, index+1)
			return
		}
	}
	q.list[index] = nil
	q.free++
	for q.firstUsed < len(q.list) && q.list[q.firstUsed] == nil {
		q.firstUsed++
	}
}

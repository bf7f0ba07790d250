// Package queue keeps things in numbered places that are used again, and puts
// the numbers into queues. A number is in at most one queue, so the links are
// two numbers for each place, and moving one allocates nothing.
package queue

import (
	"fmt"
	"iter"
)

// None is no place.
const None int32 = -1

// Places holds things under the ids that their owner gave them. A thing stays
// where it is until Remove; pointers to it are good until the next Add.
type Places[T any] struct {
	things []T
	links  []link
	spare  []int32
	byID   map[int]int32
	queues int32
}

type link struct {
	next, prev int32
	in         int32 // the queue's number; 0: in none
	marked     bool
}

// Add makes a place for id and returns it, or None if there is one. What is in
// it is what was there before, so that its arrays can be used again.
func (p *Places[T]) Add(id int) int32 {
	if p.byID == nil {
		p.byID = map[int]int32{}
	}
	if _, taken := p.byID[id]; taken {
		return None
	}
	var at int32
	if n := len(p.spare); n > 0 {
		at, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		at = int32(len(p.things))
		var zero T
		p.things = append(p.things, zero)
		p.links = append(p.links, link{})
	}
	p.byID[id] = at
	return at
}

// Find returns the place of id, or None.
func (p *Places[T]) Find(id int) int32 {
	if at, ok := p.byID[id]; ok {
		return at
	}
	return None
}

// At is the thing in a place.
func (p *Places[T]) At(at int32) *T { return &p.things[at] }

// Remove gives the place of id, which must be in no queue, away.
func (p *Places[T]) Remove(id int) {
	at, ok := p.byID[id]
	if !ok || p.links[at].in != 0 {
		panic(fmt.Sprintf("place %d of %d is removed, but it is in a queue or there is none", at, id))
	}
	delete(p.byID, id)
	p.spare = append(p.spare, at)
}

// Len is the number of things.
func (p *Places[T]) Len() int { return len(p.byID) }

// Mark marks the places of ids for TakeMarked. The error names an id that there
// is not, or is marked already, and nothing has changed.
func (p *Places[T]) Mark(ids ...int) error {
	for i, id := range ids {
		at := p.Find(id)
		if at == None || p.links[at].marked {
			p.Unmark(ids[:i]...)
			return fmt.Errorf("there is no %d, or it is named twice", id)
		}
		p.links[at].marked = true
	}
	return nil
}

// Unmark takes the marks of ids back.
func (p *Places[T]) Unmark(ids ...int) {
	for _, id := range ids {
		p.links[p.byID[id]].marked = false
	}
}

// TakeMarked takes the n marked places out of the queues, queue by queue from
// the head, and calls f for each.
func (p *Places[T]) TakeMarked(n int, queues []*Queue, f func(at int32)) {
	for _, q := range queues {
		for at := q.Head(); at != None && n > 0; {
			next := q.Next(at)
			if p.links[at].marked {
				q.Remove(at)
				f(at)
				n--
			}
			at = next
		}
	}
}

// All yields ids and places in no order.
func (p *Places[T]) All() iter.Seq2[int, int32] {
	return func(yield func(int, int32) bool) {
		for id, at := range p.byID {
			if !yield(id, at) {
				return
			}
		}
	}
}

// Queue returns an empty queue of places.
func (p *Places[T]) Queue() *Queue {
	p.queues++
	return &Queue{links: &p.links, number: p.queues, head: None, tail: None}
}

// A Queue is a list of places.
type Queue struct {
	links      *[]link
	number     int32
	head, tail int32
	n          int
}

// Len is the length of the queue.
func (q *Queue) Len() int { return q.n }

// Head and Tail are the places at the ends, or None.
func (q *Queue) Head() int32 { return q.head }
func (q *Queue) Tail() int32 { return q.tail }

// IDs are the ids of the places from head to tail, as id says them.
func (q *Queue) IDs(id func(at int32) int) []int {
	ids := []int{}
	for at := range q.All() {
		ids = append(ids, id(at))
	}
	return ids
}

// Next and Prev are the neighbours of a place in the queue, or None.
func (q *Queue) Next(at int32) int32 { return (*q.links)[at].next }
func (q *Queue) Prev(at int32) int32 { return (*q.links)[at].prev }

// PushBack adds a place at the tail.
func (q *Queue) PushBack(at int32) { q.insert(at, q.tail, None) }

// PushFront adds a place at the head.
func (q *Queue) PushFront(at int32) { q.insert(at, None, q.head) }

// InsertAfter adds a place behind another one of the queue, or at the head if
// that is None.
func (q *Queue) InsertAfter(at, before int32) {
	if before == None {
		q.PushFront(at)
		return
	}
	q.insert(at, before, q.Next(before))
}

func (q *Queue) insert(at, prev, next int32) {
	links := *q.links
	if links[at].in != 0 {
		panic(fmt.Sprintf("place %d is queued twice", at))
	}
	links[at] = link{next: next, prev: prev, in: q.number}
	if prev == None {
		q.head = at
	} else {
		links[prev].next = at
	}
	if next == None {
		q.tail = at
	} else {
		links[next].prev = at
	}
	q.n++
}

// Remove takes a place out of the queue.
func (q *Queue) Remove(at int32) {
	links := *q.links
	l := links[at]
	if l.in != q.number {
		panic(fmt.Sprintf("place %d is taken out of a queue that it is not in", at))
	}
	if l.prev == None {
		q.head = l.next
	} else {
		links[l.prev].next = l.next
	}
	if l.next == None {
		q.tail = l.prev
	} else {
		links[l.next].prev = l.prev
	}
	links[at] = link{}
	q.n--
}

// Has reports whether a place is in the queue.
func (q *Queue) Has(at int32) bool { return (*q.links)[at].in == q.number }

// All yields the places from head to tail; the one it is at may be removed.
func (q *Queue) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for at := q.head; at != None; {
			next := q.Next(at)
			if !yield(at) {
				return
			}
			at = next
		}
	}
}

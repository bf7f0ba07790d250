// Package reqtable finds requests by number. A Table is a slab of requests, found by the ids that their
// owner gave them, with queues of the slab's places. A place is in at most one queue, so a queue's links
// are two numbers for each place, and moving a request from one queue to another allocates nothing.
// Handles gives requests, and other values, numbers of its own.
//
// The scheduler defines what a request is, and decides when it moves.
package reqtable

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// None is no place.
const None int32 = -1

// A Table holds one T for each id. It stays in its place until Remove; pointers
// to it are valid until the next Add.
type Table[T any] struct {
	items  []T
	links  []link
	free   []int32
	byID   map[int]int32
	queues int32
}

type link struct {
	next, prev int32
	in         int32 // the queue's number; 0: in none
	marked     bool
}

// Add makes a place for id and returns it, or None if id has one. The place has its earlier
// contents, so that the arrays in it can be used again.
func (t *Table[T]) Add(id int) int32 {
	if t.byID == nil {
		t.byID = map[int]int32{}
	}
	if _, taken := t.byID[id]; taken {
		return None
	}
	var at int32
	if n := len(t.free); n > 0 {
		at, t.free = t.free[n-1], t.free[:n-1]
	} else {
		at = int32(len(t.items))
		t.items = append(t.items, *new(T))
		t.links = append(t.links, link{})
	}
	t.byID[id] = at
	return at
}

// Find returns the place of id, or None.
func (t *Table[T]) Find(id int) int32 {
	if at, ok := t.byID[id]; ok {
		return at
	}
	return None
}

// At returns the contents of a place.
func (t *Table[T]) At(at int32) *T { return &t.items[at] }

// Remove frees the place of id, which must be in no queue.
func (t *Table[T]) Remove(id int) {
	at, ok := t.byID[id]
	if !ok || t.links[at].in != 0 {
		panic(fmt.Sprintf("place %d of %d is removed, but it is in a queue or there is none", at, id))
	}
	delete(t.byID, id)
	t.free = append(t.free, at)
}

// Len is the number of ids in the table.
func (t *Table[T]) Len() int { return len(t.byID) }

// Check reports an id that is not in the table, or that is named twice.
func (t *Table[T]) Check(ids ...int) error {
	err := t.mark(ids)
	if err == nil {
		t.unmark(ids)
	}
	return err
}

// TakeAll takes the places of ids out of the queues, queue by queue from the
// head, whatever the order of ids, and calls f for each. An id that is in none
// of the queues is passed over. The error is Check's; nothing has changed then.
func (t *Table[T]) TakeAll(ids []int, queues []*Queue, f func(at int32)) error {
	if err := t.mark(ids); err != nil {
		return err
	}
	left := len(ids)
	for _, id := range ids {
		if at := t.byID[id]; t.links[at].in == 0 || !slices.ContainsFunc(queues, func(q *Queue) bool { return q.Has(at) }) {
			t.links[at].marked = false
			left--
		}
	}
	for _, q := range queues {
		for at := q.Head(); at != None && left > 0; {
			next := q.Next(at)
			if t.links[at].marked {
				q.Remove(at)
				f(at)
				left--
			}
			at = next
		}
	}
	return nil
}

func (t *Table[T]) mark(ids []int) error {
	for i, id := range ids {
		at := t.Find(id)
		if at == None || t.links[at].marked {
			t.unmark(ids[:i])
			return fmt.Errorf("there is no %d, or it is named twice", id)
		}
		t.links[at].marked = true
	}
	return nil
}

func (t *Table[T]) unmark(ids []int) {
	for _, id := range ids {
		t.links[t.byID[id]].marked = false
	}
}

// All yields ids and places in no order.
func (t *Table[T]) All() iter.Seq2[int, int32] { return maps.All(t.byID) }

// Queue returns an empty queue of places.
func (t *Table[T]) Queue() *Queue {
	t.queues++
	return &Queue{links: &t.links, number: t.queues, head: None, tail: None}
}

// NewQueues returns n empty queues of the places from 0 to places-1, without a table.
func NewQueues(places, n int) []*Queue {
	links := make([]link, places)
	queues := make([]*Queue, n)
	for i := range queues {
		queues[i] = &Queue{links: &links, number: int32(i + 1), head: None, tail: None}
	}
	return queues
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

// PushBack adds a place at the tail. It panics if the place is in a queue already.
func (q *Queue) PushBack(at int32) { q.insert(at, q.tail, None) }

// PushFront adds a place at the head.
func (q *Queue) PushFront(at int32) { q.insert(at, None, q.head) }

// InsertAfter adds a place after another one of the queue, or at the head if
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

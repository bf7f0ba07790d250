// Package reqtable finds requests by number. A Table is an array of requests, with a map from the ids that the
// owner of the table chose, and queues of requests. A request's place is its index in the array. A place is in at
// most one queue, so the links of a queue are only two numbers for each place, and moving a request from one queue
// to another allocates nothing. Handles is a table without queues that chooses the numbers itself.
package reqtable

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// None means that there is no such place.
const None int32 = -1

// A Table has one T for each id, in its place until Remove. A pointer to it is valid until the next Add.
type Table[T any] struct {
	items  []T
	links  []link
	free   []int32
	byID   map[int]int32
	queues int32
}

type link struct {
	next, prev int32
	in         int32 // number of the queue; 0 if the place is in no queue
	marked     bool
}

// Add makes a place for id and returns it. If id already has a place, Add returns None. The place still has its
// earlier contents, so that the caller can reuse the arrays in it.
func (t *Table[T]) Add(id int) int32 {
	if t.byID == nil {
		t.byID = map[int]int32{}
	}
	if _, taken := t.byID[id]; taken {
		return None
	}
	var place int32
	if n := len(t.free); n > 0 {
		place, t.free = t.free[n-1], t.free[:n-1]
	} else {
		place = int32(len(t.items))
		t.items = append(t.items, *new(T))
		t.links = append(t.links, link{})
	}
	t.byID[id] = place
	return place
}

// Find returns the place of id, or None.
func (t *Table[T]) Find(id int) int32 {
	if place, ok := t.byID[id]; ok {
		return place
	}
	return None
}

// At returns the contents of a place.
func (t *Table[T]) At(place int32) *T { return &t.items[place] }

// Remove frees the place of id. The place must not be in a queue.
func (t *Table[T]) Remove(id int) {
	place, ok := t.byID[id]
	if !ok || t.links[place].in != 0 {
		panic(fmt.Sprintf("place %d of id %d is removed, but it is in a queue or does not exist", place, id))
	}
	delete(t.byID, id)
	t.free = append(t.free, place)
}

// Len is the number of ids in the table.
func (t *Table[T]) Len() int { return len(t.byID) }

// Check returns an error if one of ids is not in the table, or is given twice.
func (t *Table[T]) Check(ids ...int) error {
	err := t.mark(ids)
	if err == nil {
		t.unmark(ids)
	}
	return err
}

// TakeAll removes the places of ids from the queues and calls f for each place, in the order of the queues and of
// the places in them. It ignores ids that are in none of the queues. If Check returns an error for ids, TakeAll
// returns this error and changes nothing.
func (t *Table[T]) TakeAll(ids []int, queues []*Queue, f func(place int32)) error {
	if err := t.mark(ids); err != nil {
		return err
	}
	remaining := len(ids)
	for _, id := range ids {
		if place := t.byID[id]; t.links[place].in == 0 || !slices.ContainsFunc(queues, func(q *Queue) bool { return q.Has(place) }) {
			t.links[place].marked = false
			remaining--
		}
	}
	for _, q := range queues {
		for place := q.Head(); place != None && remaining > 0; {
			next := q.Next(place)
			if t.links[place].marked {
				q.Remove(place)
				f(place)
				remaining--
			}
			place = next
		}
	}
	return nil
}

func (t *Table[T]) mark(ids []int) error {
	for i, id := range ids {
		place := t.Find(id)
		if place == None || t.links[place].marked {
			t.unmark(ids[:i])
			return fmt.Errorf("there is no request %d, or it is named twice", id)
		}
		t.links[place].marked = true
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

// NewQueues returns n empty queues for the places from 0 to places-1, without a table.
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

// IDs returns id(place) for the places from head to tail.
func (q *Queue) IDs(id func(place int32) int) []int {
	ids := []int{}
	for place := range q.All() {
		ids = append(ids, id(place))
	}
	return ids
}

// Next and Prev return the neighbours of a place in the queue, or None.
func (q *Queue) Next(place int32) int32 { return (*q.links)[place].next }
func (q *Queue) Prev(place int32) int32 { return (*q.links)[place].prev }

// PushBack adds a place at the tail. It panics if the place is already in a queue.
func (q *Queue) PushBack(place int32) { q.insert(place, q.tail, None) }

// PushFront adds a place at the head.
func (q *Queue) PushFront(place int32) { q.insert(place, None, q.head) }

// InsertAfter adds a place after the place before, or at the head if before is None.
func (q *Queue) InsertAfter(place, before int32) {
	if before == None {
		q.PushFront(place)
		return
	}
	q.insert(place, before, q.Next(before))
}

func (q *Queue) insert(place, prev, next int32) {
	links := *q.links
	if links[place].in != 0 {
		panic(fmt.Sprintf("place %d is queued twice", place))
	}
	links[place] = link{next: next, prev: prev, in: q.number}
	if prev == None {
		q.head = place
	} else {
		links[prev].next = place
	}
	if next == None {
		q.tail = place
	} else {
		links[next].prev = place
	}
	q.n++
}

// Remove takes a place out of the queue.
func (q *Queue) Remove(place int32) {
	links := *q.links
	l := links[place]
	if l.in != q.number {
		panic(fmt.Sprintf("place %d is taken out of a queue that it is not in", place))
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
	links[place] = link{}
	q.n--
}

// Has reports whether a place is in the queue.
func (q *Queue) Has(place int32) bool { return (*q.links)[place].in == q.number }

// All yields the places from head to tail. The caller may remove the place that All has just yielded.
func (q *Queue) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for place := q.head; place != None; {
			next := q.Next(place)
			if !yield(place) {
				return
			}
			place = next
		}
	}
}

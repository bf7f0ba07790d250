// Package reqtable has tables and queues of requests. A Table is an array of requests, and a map from the caller's ids
// to indexes of the array. A Queue is a list of indexes. An index is in at most one queue, so all queues of a table
// share one array of links. Moving a request from one queue to another allocates nothing. Handles is a table without
// queues that chooses the numbers of the requests itself.
package reqtable

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// None means that there is no such index.
const None int32 = -1

// A Table stores one T for each id. The index of an id stays the same until Remove; a pointer that At returns is valid
// until the next Add.
type Table[T any] struct {
	items  []T
	links  []link
	free   []int32
	byID   map[int]int32
	queues int32
}

type link struct {
	next, prev int32
	queue      int32 // number of the queue; 0 if the index is in no queue
	marked     bool
}

// Add assigns an index to id and returns it. If id already has an index, Add returns None. Add uses the indexes of
// removed ids again. The T at such an index still has the contents of the removed request, so that the caller can reuse
// the arrays.
func (t *Table[T]) Add(id int) int32 {
	if t.byID == nil {
		t.byID = map[int]int32{}
	}
	if _, taken := t.byID[id]; taken {
		return None
	}
	var index int32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = int32(len(t.items))
		t.items = append(t.items, *new(T))
		t.links = append(t.links, link{})
	}
	t.byID[id] = index
	return index
}

// Find returns the index of id, or None.
func (t *Table[T]) Find(id int) int32 {
	if index, ok := t.byID[id]; ok {
		return index
	}
	return None
}

// At returns the T at an index.
func (t *Table[T]) At(index int32) *T { return &t.items[index] }

// Remove removes id. Its index must not be in a queue.
func (t *Table[T]) Remove(id int) {
	index, ok := t.byID[id]
	if !ok || t.links[index].queue != 0 {
		panic(fmt.Sprintf("index %d of id %d is removed, but it is in a queue or does not exist", index, id))
	}
	delete(t.byID, id)
	t.free = append(t.free, index)
}

// Len is the number of ids in the table.
func (t *Table[T]) Len() int { return len(t.byID) }

// Check returns an error if one of ids is not in the table or occurs twice in ids.
func (t *Table[T]) Check(ids ...int) error {
	err := t.mark(ids)
	if err == nil {
		t.unmark(ids)
	}
	return err
}

// TakeAll removes the requests with the given ids from the queues and calls f for the index of each, queue after queue
// from head to tail. It ignores ids that are in none of the queues. If Check returns an error for ids, TakeAll returns
// this error and changes nothing.
func (t *Table[T]) TakeAll(ids []int, queues []*Queue, f func(index int32)) error {
	if err := t.mark(ids); err != nil {
		return err
	}
	remaining := len(ids)
	for _, id := range ids {
		if index := t.byID[id]; t.links[index].queue == 0 || !slices.ContainsFunc(queues, func(q *Queue) bool { return q.Has(index) }) {
			t.links[index].marked = false
			remaining--
		}
	}
	for _, q := range queues {
		for index := q.Head(); index != None && remaining > 0; {
			next := q.Next(index)
			if t.links[index].marked {
				q.Remove(index)
				f(index)
				remaining--
			}
			index = next
		}
	}
	return nil
}

func (t *Table[T]) mark(ids []int) error {
	for i, id := range ids {
		index := t.Find(id)
		if index == None || t.links[index].marked {
			t.unmark(ids[:i])
			return fmt.Errorf("there is no request %d, or it is named twice", id)
		}
		t.links[index].marked = true
	}
	return nil
}

func (t *Table[T]) unmark(ids []int) {
	for _, id := range ids {
		t.links[t.byID[id]].marked = false
	}
}

// All yields the ids and their indexes in no particular order.
func (t *Table[T]) All() iter.Seq2[int, int32] { return maps.All(t.byID) }

// Queue returns an empty queue of indexes of the table.
func (t *Table[T]) Queue() *Queue {
	t.queues++
	return &Queue{links: &t.links, number: t.queues, head: None, tail: None}
}

// NewQueues returns n empty queues. The queues hold the indexes 0 to size-1 and belong to no Table.
func NewQueues(size, n int) []*Queue {
	links := make([]link, size)
	queues := make([]*Queue, n)
	for i := range queues {
		queues[i] = &Queue{links: &links, number: int32(i + 1), head: None, tail: None}
	}
	return queues
}

// A Queue is a list of indexes.
type Queue struct {
	links      *[]link
	number     int32
	head, tail int32
	n          int
}

// Len is the length of the queue.
func (q *Queue) Len() int { return q.n }

// Head and Tail return the first and the last index, or None.
func (q *Queue) Head() int32 { return q.head }
func (q *Queue) Tail() int32 { return q.tail }

// IDs returns id(index) for the indexes from head to tail.
func (q *Queue) IDs(id func(index int32) int) []int {
	ids := []int{}
	for index := range q.All() {
		ids = append(ids, id(index))
	}
	return ids
}

// Next and Prev return the neighbours of an index in the queue, or None.
func (q *Queue) Next(index int32) int32 { return (*q.links)[index].next }
func (q *Queue) Prev(index int32) int32 { return (*q.links)[index].prev }

// PushBack adds an index at the tail. It panics if the index is already in a queue.
func (q *Queue) PushBack(index int32) { q.insert(index, q.tail, None) }

// PushFront adds an index at the head.
func (q *Queue) PushFront(index int32) { q.insert(index, None, q.head) }

// InsertAfter adds an index after the index prev. If prev is None, it adds the index at the head.
func (q *Queue) InsertAfter(index, prev int32) {
	if prev == None {
		q.PushFront(index)
		return
	}
	q.insert(index, prev, q.Next(prev))
}

func (q *Queue) insert(index, prev, next int32) {
	links := *q.links
	if links[index].queue != 0 {
		panic(fmt.Sprintf("index %d is queued twice", index))
	}
	links[index] = link{next: next, prev: prev, queue: q.number}
	if prev == None {
		q.head = index
	} else {
		links[prev].next = index
	}
	if next == None {
		q.tail = index
	} else {
		links[next].prev = index
	}
	q.n++
}

// Remove removes an index from the queue.
func (q *Queue) Remove(index int32) {
	links := *q.links
	l := links[index]
	if l.queue != q.number {
		panic(fmt.Sprintf("index %d is taken out of a queue that it is not in", index))
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
	links[index] = link{}
	q.n--
}

// Has reports whether an index is in the queue.
func (q *Queue) Has(index int32) bool { return (*q.links)[index].queue == q.number }

// All yields the indexes from head to tail. The caller may remove the index that All has just yielded.
func (q *Queue) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for index := q.head; index != None; {
			next := q.Next(index)
			if !yield(index) {
				return
			}
			index = next
		}
	}
}

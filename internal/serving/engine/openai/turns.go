package openai

import (
	"context"
	"slices"
	"sync"
)

// turns lets one request work at a time. The clients that wait take turns: a client with many requests delays the
// request of another client by at most two of its own, the one that works and one that waits.
type turns struct {
	mutex   sync.Mutex
	busy    bool
	waiting []*queue // of the clients that wait; the first is next
}

// queue has the waiting requests of a client, in their order.
type queue struct {
	client   string
	requests []chan struct{} // each is closed when it is the request's turn
}

// take waits for the turn of a request. It returns errGone if ctx ends before.
func (t *turns) take(ctx context.Context, client string) error {
	if ctx.Err() != nil {
		return errGone
	}
	turn := t.join(client)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.leave(client, turn) { // its turn has come meanwhile
		t.end()
	}
	return errGone
}

// join takes the turn if nobody has it, and otherwise adds a request to the client's queue.
func (t *turns) join(client string) (turn chan struct{}) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.busy {
		t.busy = true
		return nil
	}
	i := slices.IndexFunc(t.waiting, func(q *queue) bool { return q.client == client })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, &queue{client: client})
	}
	turn = make(chan struct{})
	t.waiting[i].requests = append(t.waiting[i].requests, turn)
	return turn
}

// leave removes a request that waits. It returns false if the request waits no more.
func (t *turns) leave(client string, turn chan struct{}) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	i := slices.IndexFunc(t.waiting, func(q *queue) bool { return q.client == client })
	if i < 0 {
		return false
	}
	q := t.waiting[i]
	place := slices.Index(q.requests, turn)
	if place < 0 {
		return false
	}
	if q.requests = slices.Delete(q.requests, place, place+1); len(q.requests) == 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	return true
}

// end ends a turn. The first request of the next client gets the turn, and this client then waits behind all others.
func (t *turns) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	q := t.waiting[0]
	t.waiting = t.waiting[1:]
	turn := q.requests[0]
	if q.requests = q.requests[1:]; len(q.requests) > 0 {
		t.waiting = append(t.waiting, q)
	}
	close(turn)
}

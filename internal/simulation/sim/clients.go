package sim

import (
	"container/heap"
	"errors"
	"io"
	"slices"

	"llmmemory/internal/simulation/workload"
)

// Clients send the requests of a source and the next turns of its sessions, with a limit on the number of
// unanswered requests, as the clients of vLLM's "bench serve" do. Latency counts from the time at which a
// request is sent.
type Clients struct {
	source   workload.Source
	sessions workload.Sessions // nil if requests are independent
	limit    int               // of unanswered requests; 0 means no limit

	next  workload.Request // of the source
	ended bool             // the source has no more requests
	turns byArrival        // turns that are not due yet
	freed float64          // s; when the number of unanswered requests last fell below limit
}

// NewClients returns the clients of a source, which have at most limit unanswered requests. If limit is 0, there is no
// limit.
func NewClients(source workload.Source, limit int) (*Clients, error) {
	c := &Clients{source: source, limit: limit}
	c.sessions, _ = source.(workload.Sessions)
	return c, c.Pull()
}

// Pull reads the next request of the source. Call it after Take has returned a request of the source.
func (c *Clients) Pull() error {
	switch err := c.source.Next(&c.next); {
	case errors.Is(err, io.EOF):
		c.ended = true
	case err != nil:
		return err
	}
	return nil
}

// Done reports whether the clients have nothing to send until another answer starts a turn: the source has ended,
// and no turn is waiting to be sent.
func (c *Clients) Done() bool { return c.ended && len(c.turns) == 0 }

// Waits reports whether the times of requests depend on answers.
func (c *Clients) Waits() bool { return c.sessions != nil || c.limit > 0 }

// Arrival returns the time at which the next request is due. It must not be called if Done returns true.
func (c *Clients) Arrival() float64 {
	due := c.next.Arrival
	switch {
	case len(c.turns) == 0:
	case c.ended:
		due = c.turns[0].Arrival
	default:
		due = min(due, c.turns[0].Arrival)
	}
	if c.limit > 0 {
		return max(due, c.freed)
	}
	return due
}

// Full reports whether the clients may send no request while the given number of live requests are unanswered.
func (c *Clients) Full(live int) bool { return c.limit > 0 && live >= c.limit }

// Take returns the next request, and reports whether it comes from the source. If it does, the caller must call
// Pull, after which the request's hashes are invalid.
func (c *Clients) Take(r *workload.Request) (ofSource bool) {
	turn := len(c.turns) > 0 && (c.ended || c.turns[0].Arrival <= c.next.Arrival)
	if turn {
		*r = *heap.Pop(&c.turns).(*workload.Request)
	} else {
		*r = c.next
	}
	if c.limit > 0 {
		r.Arrival = max(r.Arrival, c.freed)
	}
	return !turn
}

// Answered records that a request has left the server, and that live requests remain there. A session of 0 means that
// the request has no next turn.
func (c *Clients) Answered(session int64, now float64, live int) {
	if live == c.limit-1 {
		c.freed = now
	}
	if c.sessions == nil || session == 0 {
		return
	}
	if r := new(workload.Request); c.sessions.Follow(session, now, r) {
		heap.Push(&c.turns, r)
	}
}

// A byArrival is a heap of requests for package container/heap.
type byArrival []*workload.Request

func (h byArrival) Len() int           { return len(h) }
func (h byArrival) Less(i, j int) bool { return h[i].Arrival < h[j].Arrival }
func (h byArrival) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byArrival) Push(r any)        { *h = append(*h, r.(*workload.Request)) }

func (h *byArrival) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = slices.Delete(*h, last, last+1)
	return r
}

package sim

import (
	"container/heap"
	"errors"
	"io"
	"slices"

	"llmmemory/internal/simulation/workload"
)

// Clients send the requests of a source. A later turn of a conversation is sent after the answer to the turn
// before it. At most limit requests are unanswered, as with vLLM's "bench serve --max-concurrency". The
// latency of a request begins when it is sent.
type Clients struct {
	source   workload.Source
	sessions workload.Sessions // nil if requests are independent
	limit    int               // of unanswered requests; 0 means no limit

	next  workload.Request // of the source
	sent  workload.Request // the argument of send in SendDue
	ended bool             // the source has no more requests
	turns byArrival        // turns that are not due yet
	freed float64          // s; when the number of unanswered requests last fell below limit
}

// NewClients returns clients that send the requests of a source. At most limit requests are unanswered at a
// time; 0 means no limit.
func NewClients(source workload.Source, limit int) (*Clients, error) {
	c := &Clients{source: source, limit: limit}
	c.sessions, _ = source.(workload.Sessions)
	return c, c.pull()
}

// pull reads the next request of the source. It must follow each call of take that returned true.
func (c *Clients) pull() error {
	switch err := c.source.Next(&c.next); {
	case errors.Is(err, io.EOF):
		c.ended = true
	case err != nil:
		return err
	}
	return nil
}

// Done reports whether no request is left to send, now or later. If requests are live, Done may return false later,
// because an answer may start another turn.
func (c *Clients) Done() bool { return c.ended && len(c.turns) == 0 }

// Waits reports whether the times of requests depend on answers.
func (c *Clients) Waits() bool { return c.sessions != nil || c.limit > 0 }

// Arrival returns the time at which the next request will be sent. It must not be called if Done returns true.
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

// Full reports whether the limit on live requests is reached, so that no other may be sent. A request is live from
// when it is sent until it is answered.
func (c *Clients) Full(live int) bool { return c.limit > 0 && live >= c.limit }

// SendDue calls send for each request that is due at the time now, until the limit on live requests is reached. send
// must count the request in *live; the request is valid until send returns.
func (c *Clients) SendDue(now float64, live *int, send func(*workload.Request) error) error {
	for !c.Done() && c.Arrival() <= now && !c.Full(*live) {
		ofSource := c.take(&c.sent)
		if err := send(&c.sent); err != nil {
			return err
		}
		if ofSource {
			if err := c.pull(); err != nil {
				return err
			}
		}
	}
	return nil
}

// take sets r to the next request, and reports whether the request comes from the source. If it does, the
// caller must call pull, which invalidates r.Hashes.
func (c *Clients) take(r *workload.Request) (ofSource bool) {
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

// Answered records that a request of a session has left the server at the time now. live is the number of live
// requests that remain. Answered schedules the session's next turn. Session 0 means that the request belongs to no
// conversation and has no next turn.
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

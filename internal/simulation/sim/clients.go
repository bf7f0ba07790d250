package sim

import (
	"container/heap"
	"errors"
	"io"
	"slices"

	"llmmemory/internal/simulation/workload"
)

// Clients send the requests: those of a source, next turns of its sessions, and no more
// at once than MaxConcurrency, as the clients of vLLM's "bench serve" do. Latency counts
// from when a request is sent.
type Clients struct {
	source   workload.Source
	sessions workload.Sessions // nil: no request follows another
	most     int               // sent and not answered; 0: any number

	next  workload.Request // of the source
	ended bool             // the source
	turns byArrival        // turns that come later
	freed float64          // s; when the last of the most was answered
}

// NewClients returns the clients of a source, which send at most most requests at once; 0: any number.
func NewClients(source workload.Source, most int) (*Clients, error) {
	c := &Clients{source: source, most: most}
	c.sessions, _ = source.(workload.Sessions)
	return c, c.Pull()
}

// Pull gets the next request of the source, after Take has taken one of it.
func (c *Clients) Pull() error {
	switch err := c.source.Next(&c.next); {
	case errors.Is(err, io.EOF):
		c.ended = true
	case err != nil:
		return err
	}
	return nil
}

// Done reports whether no client sends a request before another one is answered.
func (c *Clients) Done() bool { return c.ended && len(c.turns) == 0 }

// Waits reports whether answers decide when requests are sent.
func (c *Clients) Waits() bool { return c.sessions != nil || c.most > 0 }

// Arrival returns when the next request is due. There must be one.
func (c *Clients) Arrival() float64 {
	at := c.next.Arrival
	switch {
	case len(c.turns) == 0:
	case c.ended:
		at = c.turns[0].Arrival
	default:
		at = min(at, c.turns[0].Arrival)
	}
	if c.most > 0 { // a client that waits for an answer sends when it has that
		return max(at, c.freed)
	}
	return at
}

// Full reports whether no request can be sent while live ones are unanswered.
func (c *Clients) Full(live int) bool { return c.most > 0 && live >= c.most }

// Take returns the next request at the time when it is sent. If it is the source's, call Pull
// next; the request's hashes are invalid after that.
func (c *Clients) Take(r *workload.Request) (ofSource bool) {
	turn := len(c.turns) > 0 && (c.ended || c.turns[0].Arrival <= c.next.Arrival)
	if turn {
		*r = *heap.Pop(&c.turns).(*workload.Request)
	} else {
		*r = c.next
	}
	if c.most > 0 {
		r.Arrival = max(r.Arrival, c.freed)
	}
	return !turn
}

// Answered records that a request of a session (0: none) has left, and that live requests remain.
func (c *Clients) Answered(session int64, now float64, live int) {
	if live == c.most-1 {
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

package sim

import (
	"errors"
	"io"

	"llmmemory/internal/sim/workload"
)

// Clients send the requests: those of a source, next turns of its sessions, and no more
// at once than MaxConcurrency, as the clients of vLLM's "bench serve" do. Latency counts
// from when a request is sent.
type Clients struct {
	source   workload.Source
	sessions workload.Sessions // nil: no request follows another
	most     int               // sent and not answered; 0: any number

	next  workload.Request   // of the source
	ended bool               // the source
	turns []workload.Request // a heap by arrival: turns that come later
	freed float64            // s; when the last of the most was answered
}

// NewClients are those of a source, with most requests at once; 0: any number.
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

// Done is that nobody sends anything before something is answered.
func (c *Clients) Done() bool { return c.ended && len(c.turns) == 0 }

// Waits says whether answers decide when requests are sent.
func (c *Clients) Waits() bool { return c.sessions != nil || c.most > 0 }

// Arrival is when the next request wants to be sent. There is one.
func (c *Clients) Arrival() float64 {
	switch {
	case len(c.turns) == 0:
		return c.next.Arrival
	case c.ended:
		return c.turns[0].Arrival
	}
	return min(c.turns[0].Arrival, c.next.Arrival)
}

// Full says whether no request can be sent, where live are under way.
func (c *Clients) Full(live int) bool { return c.most > 0 && live >= c.most }

// Take is the next request, at the time when it is sent. If it is the source's, Pull
// comes next, after which its hashes are not valid any more.
func (c *Clients) Take(r *workload.Request) (ofSource bool) {
	turn := len(c.turns) > 0 && (c.ended || c.turns[0].Arrival <= c.next.Arrival)
	if turn {
		*r = c.pop()
	} else {
		*r = c.next
	}
	if c.most > 0 {
		r.Arrival = max(r.Arrival, c.freed)
	}
	return !turn
}

// Answered is that a request of a session, or of none, left, of which live ones are left now.
func (c *Clients) Answered(session int64, now float64, live int) {
	if live == c.most-1 {
		c.freed = now
	}
	if c.sessions == nil || session == 0 {
		return
	}
	var r workload.Request
	if c.sessions.Follow(session, now, &r) {
		c.push(r)
	}
}

func (c *Clients) push(r workload.Request) {
	c.turns = append(c.turns, r)
	for i := len(c.turns) - 1; i > 0; {
		above := (i - 1) / 2
		if c.turns[above].Arrival <= c.turns[i].Arrival {
			return
		}
		c.turns[above], c.turns[i] = c.turns[i], c.turns[above]
		i = above
	}
}

func (c *Clients) pop() workload.Request {
	r, last := c.turns[0], len(c.turns)-1
	c.turns[0] = c.turns[last]
	c.turns = c.turns[:last]
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			return r
		}
		if least+1 < last && c.turns[least+1].Arrival < c.turns[least].Arrival {
			least++
		}
		if c.turns[i].Arrival <= c.turns[least].Arrival {
			return r
		}
		c.turns[i], c.turns[least] = c.turns[least], c.turns[i]
		i = least
	}
}

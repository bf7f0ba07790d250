package sim

import (
	"errors"
	"io"

	"llmmemory/internal/sim/workload"
)

// clients send the requests: those of a source, next turns of its sessions, and no more
// at once than MaxConcurrency, as the clients of vLLM's "bench serve" do. Latency counts
// from when a request is sent.
type clients struct {
	source   workload.Source
	sessions workload.Sessions // nil: no request follows another
	most     int               // sent and not answered; 0: any number

	next  workload.Request   // of the source
	ended bool               // the source
	turns []workload.Request // a heap by arrival: turns that come later
	freed float64            // s; when the last of the most was answered
}

func newClients(source workload.Source, most int) clients {
	c := clients{source: source, most: most}
	c.sessions, _ = source.(workload.Sessions)
	return c
}

// pull gets the next request of the source.
func (c *clients) pull() error {
	switch err := c.source.Next(&c.next); {
	case errors.Is(err, io.EOF):
		c.ended = true
	case err != nil:
		return err
	}
	return nil
}

// done is that nobody sends anything before something is answered.
func (c *clients) done() bool { return c.ended && len(c.turns) == 0 }

// arrival is when the next request wants to be sent. There is one.
func (c *clients) arrival() float64 {
	switch {
	case len(c.turns) == 0:
		return c.next.Arrival
	case c.ended:
		return c.turns[0].Arrival
	}
	return min(c.turns[0].Arrival, c.next.Arrival)
}

// take is the next request, at the time when it is sent. If it is the source's, pull
// comes next, after which its hashes are not valid any more.
func (c *clients) take(r *workload.Request) (ofSource bool) {
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

// answered is that a request left, of which live ones are left now.
func (c *clients) answered(session int64, now float64, live int) {
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

func (c *clients) push(r workload.Request) {
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

func (c *clients) pop() workload.Request {
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

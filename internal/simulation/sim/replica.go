package sim

import (
	"math"

	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/simulation/workload"
)

// A Replica is one server of several, which is given its requests while time goes on.
// The caller has the clock.
type Replica struct {
	r       *run
	running bool
	end     float64 // s; of the iteration under way
}

// NewReplica makes one. What a Config says of windows, clients and Ample does not count.
func NewReplica(config Config) (*Replica, error) {
	config.From, config.Until, config.Stop, config.MaxConcurrency, config.Ample = 0, 0, false, 0, false
	r, err := newRun(config, nil)
	if err != nil {
		return nil, err
	}
	return &Replica{r: r}, nil
}

// Start begins an iteration if none is under way and there is something to do. It comes
// after all requests of a time were added.
func (p *Replica) Start() error {
	if p.running || p.r.requests.live == 0 {
		return nil
	}
	seconds, err := p.r.begin()
	if err != nil {
		return err
	}
	p.running, p.end = true, p.r.now+seconds
	return nil
}

// Advance runs all iterations that end by a time. None begins at that time itself.
func (p *Replica) Advance(until float64) error {
	for p.running && p.end <= until {
		p.running, p.r.now = false, p.end
		if err := p.r.end(); err != nil {
			return err
		}
		if p.r.now < until {
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Next returns when the current iteration ends, +Inf if there is none.
func (p *Replica) Next() float64 {
	if !p.running {
		return math.Inf(1)
	}
	return p.end
}

// Now returns when the last iteration ended.
func (p *Replica) Now() float64 { return p.r.now }

// Add gives it a request at a time up to which it was advanced. It takes part in the
// first iteration after the one under way. Latency counts from r.Arrival. The request
// has the next number of the replica in Departures, from 0.
func (p *Replica) Add(r *workload.Request, now float64) error {
	if !p.running && p.r.requests.live == 0 {
		p.r.now = now
	}
	p.r.incoming = *r
	return p.r.add()
}

// Live returns the number of requests that are not answered.
func (p *Replica) Live() int { return p.r.requests.live }

// TakeEvents moves to dst what its prefix cache stored and removed since the last call,
// and reports whether it records that: see Server.Events.
func (p *Replica) TakeEvents(dst *pool.Events) bool {
	s, ok := p.r.scheduler.(interface{ TakeEvents(*pool.Events) })
	if ok {
		s.TakeEvents(dst)
	}
	return ok
}

// Result returns the measurements so far.
func (p *Replica) Result() *Result { return p.r.result() }

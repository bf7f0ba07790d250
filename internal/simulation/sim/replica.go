package sim

import (
	"math"

	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/simulation/workload"
)

// A Replica is a server whose time and requests the caller controls. So several replicas can run on one clock.
type Replica struct {
	r       *run
	running bool
	end     float64 // s; of the current iteration
}

// NewReplica returns a replica. It ignores config.Ample, MaxConcurrency, From, Until and Stop.
func NewReplica(config Config) (*Replica, error) {
	config.From, config.Until, config.Stop, config.MaxConcurrency, config.Ample = 0, 0, false, 0, false
	r, err := newRun(config, nil)
	if err != nil {
		return nil, err
	}
	return &Replica{r: r}, nil
}

// Start begins an iteration if none is running and there are requests. Call it after adding all requests of one
// arrival time, so that they share the iteration.
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

// Advance simulates the replica until the time now. Each iteration that ends before now is followed at once by the next
// one, as long as there are requests. If an iteration ends exactly at now, Advance begins no other: the caller can
// first add the requests that arrive at now, and then call Start. If no iteration is running, Advance does nothing.
func (p *Replica) Advance(now float64) error {
	for p.running && p.end <= now {
		p.running, p.r.now = false, p.end
		if err := p.r.end(); err != nil {
			return err
		}
		if p.r.now < now {
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Next returns the time at which the running iteration ends, or +Inf if none is running.
func (p *Replica) Next() float64 {
	if !p.running {
		return math.Inf(1)
	}
	return p.end
}

// Now returns when the last iteration ended or, if it was later, when a request was added to the idle replica.
func (p *Replica) Now() float64 { return p.r.now }

// Add adds a request at the time now. The caller must have called Advance(now). The scheduler sees the request after
// the running iteration. Latency begins at r.Arrival. Departure.Index counts the calls of Add from 0.
func (p *Replica) Add(r *workload.Request, now float64) error {
	if !p.running && p.r.requests.live == 0 {
		p.r.now = now
	}
	return p.r.add(r)
}

// Live returns the number of requests that are not answered.
func (p *Replica) Live() int { return p.r.requests.live }

// TakeEvents moves to dst the events that the prefix cache has recorded since TakeEvents was last called. It returns
// false if the scheduler cannot record events. Without Server.Events there are no events.
func (p *Replica) TakeEvents(dst *pool.Events) bool {
	s, ok := p.r.scheduler.(interface{ TakeEvents(*pool.Events) })
	if ok {
		s.TakeEvents(dst)
	}
	return ok
}

// Result returns the measurements so far.
func (p *Replica) Result() *Result { return p.r.result() }

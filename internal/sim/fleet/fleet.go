package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/workload"
)

// A Kind is replicas that are alike.
type Kind struct {
	Name   string // for results
	Count  int
	GPUs   int // of each
	Server sim.Server
	Cost   *cost.Model
	Price  float64 // $ per GPU-hour; 0: not known, and so what a fleet with it costs
	Watts  float64 // of a GPU, at most; 0: not known
}

// A Config describes a fleet. Replicas are numbered from 0, kind after kind.
type Config struct {
	Kinds          []Kind
	Router         Router
	EventDelay     float64 // s, until the router of PrefixAware knows what a replica has cached
	Seed           uint64  // of the router and of failures
	MaxConcurrency int     // of all clients together; 0: any number
	Goodput        sim.Goodput
	Failures       Failures
	Scaling        Scaling

	Progress func(now float64, arrived, answered int) // nil; called now and then
}

// Failures of replicas: each fails after an exponential time, and loses its requests,
// which are sent again, and its cache. 0: none fails.
type Failures struct {
	MTBF float64 // s, mean, of one replica that serves
	Down float64 // s, until it serves again
}

// A fleet is a run under way.
type fleet struct {
	Config
	replicas  []*replica
	router    router
	clients   *sim.Clients
	rng       *rand.Rand // of failures
	now       float64
	latencies *sim.Latencies
	result    Result
	unserved  []unserved // sent, but no replica serves
	nextScale float64
	live      int // sent and not answered
}

// ErrNoReplica is wrapped when requests wait and no replica will ever serve again.
var ErrNoReplica = errors.New("no replica serves")

// ErrFailures is wrapped when a request is never answered because replicas fail too often.
var ErrFailures = errors.New("replicas fail sooner than they answer")

// mostSent is how often a request is sent before the fleet is given up: one in a thousand of its attempts
// would have to last.
const mostSent = 1000

// An unserved request has been lost with replicas some times.
type unserved struct {
	workload.Request
	lost int
}

// Run serves the requests of a source. It ends with the context's error if that is done.
func Run(ctx context.Context, config Config, source workload.Source) (*Result, error) {
	f, err := newFleet(config)
	if err != nil {
		return nil, err
	}
	if f.clients, err = sim.NewClients(source, config.MaxConcurrency); err != nil {
		return nil, err
	}
	for turn := 1; ; turn++ {
		if turn%1024 == 0 {
			if config.Progress != nil {
				config.Progress(f.now, f.result.Arrived, f.result.Answered)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		more, err := f.step()
		if err != nil {
			return nil, err
		}
		if !more {
			return f.finish(), nil
		}
	}
}

func newFleet(config Config) (*fleet, error) {
	f := &fleet{Config: config, rng: rand.New(rand.NewPCG(config.Seed, 0x6661696c)), latencies: sim.NewLatencies(config.Goodput)}
	if _, err := ParseRouter(string(config.Router)); err != nil {
		return nil, err
	}
	total := 0
	for _, k := range config.Kinds {
		total += k.Count
	}
	most := max(total, config.Scaling.Most)
	if total < 1 || most > mostReplicas {
		return nil, fmt.Errorf("%w: %d replicas: want 1 to %d", sim.ErrConfig, most, mostReplicas)
	}
	for _, n := range []struct {
		what  string
		value float64
	}{
		{"seconds until the router knows what is cached", config.EventDelay},
		{"seconds until a replica fails", config.Failures.MTBF}, {"seconds until it serves again", config.Failures.Down},
	} {
		if !(n.value >= 0) || math.IsInf(n.value, 0) {
			return nil, fmt.Errorf("%w: %s: %v: want a number of at least 0", sim.ErrConfig, n.what, n.value)
		}
	}
	if err := config.Scaling.check(total); err != nil {
		return nil, err
	}
	for _, k := range config.Kinds {
		for range k.Count {
			if err := f.addReplica(k); err != nil {
				return nil, err
			}
		}
	}
	f.router = router{kind: config.Router, rng: rand.New(rand.NewPCG(config.Seed, 0x726f757465)), index: newIndex(config.EventDelay, most), block: f.replicas[0].kind.Server.BlockSize}
	f.result.Most = total
	f.nextScale = config.Scaling.Every
	return f, nil
}

// step goes to the next thing that happens: a request comes, an iteration ends while
// requests depend on it, a replica fails or comes back, the number is reconsidered.
func (f *fleet) step() (more bool, err error) {
	send := !f.clients.Done() && !f.clients.Full(f.live)
	if !send && f.live == 0 {
		return !f.clients.Done(), nil
	}
	for _, p := range f.replicas {
		if p.state != down && p.state != released {
			if err := p.Start(); err != nil {
				return false, fmt.Errorf("replica %d: %w", p.number, err)
			}
		}
	}
	at := math.Inf(1)
	if send {
		at = max(f.now, f.clients.Arrival())
	}
	for _, p := range f.replicas {
		at = min(at, p.event())
		if p.Replica != nil && (!send || f.clients.Waits()) {
			at = min(at, p.Next())
		}
	}
	if f.Scaling.Most > 0 {
		at = min(at, f.nextScale)
	}
	if math.IsInf(at, 1) {
		return false, fmt.Errorf("%w: %d requests wait at %.3f s", ErrNoReplica, f.live, f.now)
	}
	f.now = at
	if err := f.advance(at); err != nil {
		return false, err
	}
	if err := f.happen(); err != nil {
		return false, err
	}
	// Answers may have brought turns that come before at, or made room.
	for !f.clients.Done() && !f.clients.Full(f.live) && f.clients.Arrival() <= f.now {
		var q workload.Request
		ofSource := f.clients.Take(&q)
		f.result.Arrived++
		f.live++
		if err := f.send(&q, 0); err != nil {
			return false, err
		}
		if ofSource {
			if err := f.clients.Pull(); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// advance runs all replicas up to a time.
func (f *fleet) advance(to float64) error {
	for _, p := range f.replicas {
		if p.state == down || p.state == released {
			continue
		}
		if err := p.Advance(to); err != nil {
			return fmt.Errorf("replica %d: %w", p.number, err)
		}
		if f.Router == PrefixAware && p.TakeEvents(&f.router.index.events) {
			f.router.index.note(p.number, p.Now())
		}
	}
	return nil
}

// send gives a request, which was lost some times, to a replica, or keeps it until one serves.
func (f *fleet) send(q *workload.Request, lost int) error {
	f.router.index.arrive(f.now)
	to := f.router.choose(f.replicas, q)
	if to < 0 {
		keep := unserved{*q, lost}
		keep.Hashes = append([]int64(nil), q.Hashes...)
		f.unserved = append(f.unserved, keep)
		return nil
	}
	return f.replicas[to].take(q, lost, f.now, f.Failures.MTBF > 0)
}

// left counts a request that has left a replica.
func (f *fleet) left(d sim.Departure) {
	f.live--
	session := d.Session
	if d.Answered {
		f.result.Answered++
		f.latencies.Add(d)
		f.result.Seconds = max(f.result.Seconds, d.Done)
	} else {
		f.result.Refused++
		session = 0
	}
	f.clients.Answered(session, d.Done, f.live)
}

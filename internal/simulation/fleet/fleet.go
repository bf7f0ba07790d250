package fleet

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

// A Kind describes equal replicas.
type Kind struct {
	Name   string // for results
	Count  int
	Server sim.Server
	Cost   *cost.Model
}

// A Config describes a fleet. The replicas are numbered from 0, in the order of Kinds.
type Config struct {
	Kinds          []Kind
	Router         Router
	EventDelay     float64 // s until the router of PrefixAware learns what a replica has cached
	Seed           uint64  // of the router
	MaxConcurrency int     // of all clients together; 0 means no limit
	Goodput        sim.Goodput
}

// A fleet is a run in progress.
type fleet struct {
	Config
	replicas  []*replica
	router    router
	clients   *sim.Clients
	now       float64
	latencies *sim.Latencies
	result    Result
	live      int // requests that are sent and not answered
}

// Run simulates the fleet until it has answered all requests of the source. If ctx is canceled, Run returns
// ctx's error.
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
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		running, err := f.step()
		if err != nil {
			return nil, err
		}
		if !running {
			return f.finish(), nil
		}
	}
}

func newFleet(config Config) (*fleet, error) {
	f := &fleet{Config: config, latencies: sim.NewLatencies(config.Goodput)}
	if _, err := ParseRouter(string(config.Router)); err != nil {
		return nil, err
	}
	total := 0
	for _, k := range config.Kinds {
		total += k.Count
	}
	if total < 1 || total > maxReplicas {
		return nil, fmt.Errorf("%w: %d replicas: want 1 to %d", sim.ErrConfig, total, maxReplicas)
	}
	if !(config.EventDelay >= 0) || math.IsInf(config.EventDelay, 0) {
		return nil, fmt.Errorf("%w: %v seconds until the router knows what is cached: want a number of at least 0",
			sim.ErrConfig, config.EventDelay)
	}
	for i := range config.Kinds {
		for range config.Kinds[i].Count {
			if err := f.addReplica(&config.Kinds[i]); err != nil {
				return nil, err
			}
		}
	}
	f.router = router{
		kind: config.Router, rng: rand.New(rand.NewPCG(config.Seed, 0x726f757465)),
		index: newIndex(config.EventDelay, total), block: f.replicas[0].kind.Server.BlockSize,
	}
	return f, nil
}

// step advances the simulated time to the next event: the arrival of a request or, if arrivals depend on answers or no
// request can be sent, the end of an iteration. It reports whether the run goes on.
func (f *fleet) step() (running bool, err error) {
	send := !f.clients.Done() && !f.clients.Full(f.live)
	if !send && f.live == 0 {
		return !f.clients.Done(), nil
	}
	event := math.Inf(1)
	if send {
		event = max(f.now, f.clients.Arrival())
	}
	for _, p := range f.replicas {
		if err := p.Start(); err != nil {
			return false, fmt.Errorf("replica %d: %w", p.number, err)
		}
		if !send || f.clients.Waits() {
			event = min(event, p.Next())
		}
	}
	f.now = event
	if err := f.advance(event); err != nil {
		return false, err
	}
	// Further requests may be due now: an answer may have started another turn of its conversation, or may let a
	// client send again.
	return true, f.clients.SendDue(f.now, &f.live, f.send)
}

func (f *fleet) advance(end float64) error {
	for _, p := range f.replicas {
		if err := p.Advance(end); err != nil {
			return fmt.Errorf("replica %d: %w", p.number, err)
		}
		if f.Router == PrefixAware && p.TakeEvents(&f.router.index.events) {
			f.router.index.note(p.number, p.Now())
		}
	}
	return nil
}

func (f *fleet) send(q *workload.Request) error {
	f.result.Arrived++
	f.live++
	f.router.index.arrive(f.now)
	p := f.replicas[f.router.choose(f.replicas, q)]
	n := blocks(q.Prompt, p.kind.Server.BlockSize)
	p.blocks[p.count] = n
	p.pending += n
	p.count++
	return p.Add(q, f.now)
}

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

// A replica is a server of the fleet.
type replica struct {
	*sim.Replica
	kind    *Kind
	number  int
	pending int         // prompt blocks of unanswered requests
	count   int         // requests so far
	blocks  map[int]int // prompt blocks of each unanswered request
}

func (f *fleet) addReplica(k *Kind) (err error) {
	server := k.Server
	server.Events = f.Router == PrefixAware
	p := &replica{kind: k, number: len(f.replicas), blocks: map[int]int{}}
	p.Replica, err = sim.NewReplica(sim.Config{
		Server: server, Cost: k.Cost, Seed: f.Seed + uint64(p.number),
		Departed: func(d sim.Departure) {
			p.pending -= p.blocks[d.Index]
			delete(p.blocks, d.Index)
			f.left(d)
		},
	})
	f.replicas = append(f.replicas, p)
	return err
}

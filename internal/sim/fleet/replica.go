package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/workload"
)

type state uint8

const (
	serving  state = iota
	starting       // costs money, and takes no requests yet
	draining       // takes no more requests
	down           // failed; costs money
	released       // costs nothing
)

// A replica is a server of the fleet, in a place that is used again after it was released.
type replica struct {
	*sim.Replica
	kind    *Kind
	number  int
	state   state
	until   float64 // s; when it serves, of one that starts or is down
	fails   float64 // s; +Inf: never
	from    float64 // s; since when it costs money
	pending int     // blocks of prompts of requests that are not answered

	count   int // requests that this sim.Replica was given
	flights map[int]flight

	result ReplicaResult // of what ended
}

// A flight is a request that is not answered.
type flight struct {
	blocks  int
	request *workload.Request // nil: nothing fails
	lost    int               // how often, with replicas before this one
}

// addReplica puts a replica of a kind in a new place, serving.
func (f *fleet) addReplica(k Kind) error {
	p := &replica{kind: &k, number: len(f.replicas), result: ReplicaResult{Kind: k.Name}}
	f.replicas = append(f.replicas, p)
	return f.boot(p)
}

// boot makes a new server in a place, which serves at once.
func (f *fleet) boot(p *replica) (err error) {
	server := p.kind.Server
	server.Events = f.Router == PrefixAware
	p.state, p.count, p.pending, p.flights, p.fails = serving, 0, 0, map[int]flight{}, math.Inf(1)
	if f.Failures.MTBF > 0 {
		p.fails = f.now + f.Failures.MTBF*f.rng.ExpFloat64()
	}
	p.Replica, err = sim.NewReplica(sim.Config{
		Server: server, Cost: p.kind.Cost, Seed: f.Seed + uint64(p.number),
		Left: func(d sim.Departure) {
			p.pending -= p.flights[d.Index].blocks
			delete(p.flights, d.Index)
			f.left(d)
		},
	})
	return err
}

// take gives the replica a request, which was lost some times; one that may have to be sent again is kept.
func (p *replica) take(q *workload.Request, lost int, now float64, keep bool) error {
	w := flight{blocks: blocks(q.Prompt, p.kind.Server.BlockSize), lost: lost}
	if keep {
		copied := *q
		copied.Hashes = slices.Clone(q.Hashes)
		w.request = &copied
	}
	p.flights[p.count] = w
	p.pending += w.blocks
	p.count++
	return p.Add(q, now)
}

// event is when something happens to the replica that is no iteration.
func (p *replica) event() float64 {
	switch p.state {
	case starting, down:
		return p.until
	case serving:
		return p.fails
	}
	return math.Inf(1)
}

// happen is what happens to replicas and to their number by now.
func (f *fleet) happen() error {
	for _, p := range f.replicas {
		switch {
		case p.state == serving && p.fails <= f.now:
			if err := f.fail(p); err != nil {
				return err
			}
		case p.state == starting && p.until <= f.now:
			p.state = serving
		case p.state == down && p.until <= f.now:
			if err := f.boot(p); err != nil {
				return err
			}
		case p.state == draining && p.Live() == 0:
			f.close(p)
			p.state = released
		}
	}
	if f.Scaling.Most > 0 && f.now >= f.nextScale {
		f.nextScale = f.now + f.Scaling.Every
		if err := f.scale(); err != nil {
			return err
		}
	}
	again := f.unserved
	f.unserved = nil
	for i := range again {
		if err := f.send(&again[i].Request, again[i].lost); err != nil {
			return err
		}
	}
	return nil
}

// fail takes a replica down. Its requests are sent again, in their order; those that
// were being answered begin anew. The error wraps ErrFailures.
func (f *fleet) fail(p *replica) error {
	for _, at := range slices.Sorted(maps.Keys(p.flights)) {
		w := p.flights[at]
		if w.lost+1 >= mostSent {
			return fmt.Errorf("%w: a request of %d + %d tokens was sent %d times by %.0f s; %g s until a replica fails are too few", ErrFailures,
				w.request.Prompt, w.request.Output, mostSent, f.now, f.Failures.MTBF)
		}
		f.unserved = append(f.unserved, unserved{*w.request, w.lost + 1})
		f.result.Retried++
	}
	p.result.add(p.Result())
	p.result.Failures++
	f.result.Failures++
	f.router.index.lost(p.number)
	p.Replica, p.flights, p.pending = nil, nil, 0
	p.state, p.until = down, f.now+f.Failures.Down
	return nil
}

// close counts what a replica did until now.
func (f *fleet) close(p *replica) {
	if p.Replica != nil {
		p.result.add(p.Result())
		f.router.index.lost(p.number)
	}
	p.result.GPUSeconds += float64(max(1, p.kind.GPUs)) * (f.now - p.from)
	p.Replica = nil
}

package fleet

import (
	"fmt"
	"math"

	"llmmemory/internal/sim"
)

// Scaling changes the number of replicas with the load. New ones are of the first kind.
type Scaling struct {
	Least, Most int     // replicas; a Most of 0: the number stays
	By          Measure // what of
	Target      float64 // of a replica
	Every       float64 // s, from one look to the next
	Startup     float64 // s, until a new replica serves
}

// A Measure is what the number of replicas follows.
type Measure string

// Measures, as means over the replicas that serve.
const (
	Queue Measure = "queue" // requests without memory
	KVUse Measure = "kv"    // part of the blocks that is used
)

func (s Scaling) check(total int) error {
	if s.Most == 0 {
		return nil
	}
	switch {
	case s.Least < 1 || s.Most < s.Least:
		return fmt.Errorf("%w: replicas to be scaled from %d to %d: want at least 1, and at most as many as the second number", sim.ErrConfig, s.Least, s.Most)
	case total < s.Least || total > s.Most:
		return fmt.Errorf("%w: %d replicas at first, to be scaled from %d to %d: want a number between these", sim.ErrConfig, total, s.Least, s.Most)
	case s.By != Queue && s.By != KVUse:
		return fmt.Errorf("%w: the number of replicas follows %q: want %s or %s", sim.ErrConfig, s.By, Queue, KVUse)
	case !(s.Startup >= 0) || math.IsInf(s.Startup, 0):
		return fmt.Errorf("%w: %v s to start a replica: want a number of at least 0", sim.ErrConfig, s.Startup)
	case !(s.Target > 0) || math.IsInf(s.Target, 0):
		return fmt.Errorf("%w: a target of %v for each replica: want a number above 0", sim.ErrConfig, s.Target)
	case !(s.Every > 0) || math.IsInf(s.Every, 0):
		return fmt.Errorf("%w: %v s from one look at the load to the next: want a number above 0", sim.ErrConfig, s.Every)
	}
	return nil
}

// scale is the rule of Kubernetes' horizontal autoscaler: as many replicas as bring the
// measure to its target, and none changes within a tenth of it. It takes one away at a
// time, so that a pause between bursts does not empty the fleet.
func (f *fleet) scale() error {
	ready, coming, sum := 0, 0, 0.0
	for _, p := range f.replicas {
		switch p.state {
		case serving:
			ready++
			if u := p.Usage(); f.Scaling.By == KVUse && u.Blocks > 0 {
				sum += float64(u.Used) / float64(u.Blocks)
			} else {
				sum += float64(p.Waiting())
			}
		case starting, down:
			coming++
		}
	}
	if ready == 0 {
		return nil
	}
	part := sum / float64(ready) / f.Scaling.Target
	now := ready + coming
	switch {
	case part > 1.1:
		want := min(f.Scaling.Most, int(math.Ceil(float64(ready)*part)))
		for ; now < want; now++ {
			if err := f.grow(); err != nil {
				return err
			}
		}
		f.result.Most = max(f.result.Most, now)
	case part < 0.9 && now > f.Scaling.Least && math.Ceil(float64(now)*part) < float64(now):
		f.shrink()
	}
	return nil
}

// grow starts a replica. One that only answers what it has takes requests again at once;
// else a place that was released is used, or a new one.
func (f *fleet) grow() error {
	for _, q := range f.replicas {
		if q.state == draining {
			q.state = serving
			return nil
		}
	}
	var p *replica
	for _, q := range f.replicas {
		if q.state == released && q.kind.Name == f.Kinds[0].Name {
			p = q
			break
		}
	}
	switch {
	case p != nil:
		if err := f.boot(p); err != nil {
			return err
		}
	case len(f.replicas) == f.Scaling.Most: // what was released is of another kind
		return nil
	default:
		if err := f.addReplica(f.Kinds[0]); err != nil {
			return err
		}
		p = f.replicas[len(f.replicas)-1]
	}
	p.state, p.until, p.from = starting, f.now+f.Scaling.Startup, f.now
	if f.Failures.MTBF > 0 {
		p.fails = p.until + f.Failures.MTBF*f.rng.ExpFloat64()
	}
	return nil
}

// shrink lets the last replica that serves answer what it has, and no more.
func (f *fleet) shrink() {
	for i := len(f.replicas) - 1; i >= 0; i-- {
		if f.replicas[i].state == serving {
			f.replicas[i].state = draining
			return
		}
	}
}

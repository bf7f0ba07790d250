package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/scenario"
)

// A lab runs scenarios, each once however often it is asked for, a few at the
// same time. Which one ends first changes nothing.
type lab struct {
	ctx      context.Context
	pool     capacity.Pool
	progress func(done, asked int)

	mu   sync.Mutex
	runs map[string]*outcome

	tally       sync.Mutex
	done, asked int // runs and searches
}

type outcome struct {
	ready  chan struct{}
	result *sim.Result
	err    error
}

func newLab(ctx context.Context, jobs int, progress func(done, asked int)) *lab {
	if jobs < 1 {
		jobs = runtime.GOMAXPROCS(0)
	}
	return &lab{ctx: ctx, pool: capacity.NewPool(jobs), progress: progress, runs: map[string]*outcome{}}
}

// start begins a run if there is none of this scenario.
func (l *lab) start(s scenario.Scenario) (*outcome, error) {
	key, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o, ok := l.runs[string(key)]; ok {
		return o, nil
	}
	o := &outcome{ready: make(chan struct{})}
	l.runs[string(key)] = o
	go func() {
		defer close(o.ready)
		defer l.count()()
		if o.err = l.pool.Take(l.ctx); o.err != nil {
			return
		}
		defer l.pool.Give()
		if o.result, o.err = scenario.Run(l.ctx, s); o.err != nil {
			o.err = fmt.Errorf("%s, %s: %w", s.Server.System, s.Workload, o.err)
		}
	}()
	return o, nil
}

// count adds one thing to do; the function that it returns marks it as done.
func (l *lab) count() func() {
	add := func(done, asked int) {
		l.tally.Lock()
		defer l.tally.Unlock()
		l.done += done
		l.asked += asked
		if l.progress != nil {
			l.progress(l.done, l.asked)
		}
	}
	add(0, 1)
	return func() { add(1, 0) }
}

// run returns the results of scenarios, in their order.
func (l *lab) run(scenarios []scenario.Scenario) ([]*sim.Result, error) {
	var begun []*outcome
	for _, s := range scenarios {
		o, err := l.start(s)
		if err != nil {
			return nil, err
		}
		begun = append(begun, o)
	}
	var results []*sim.Result
	for _, o := range begun {
		<-o.ready
		if o.err != nil {
			return nil, o.err
		}
		results = append(results, o.result)
	}
	return results, nil
}

// seeds runs a scenario with each seed.
func (l *lab) seeds(s scenario.Scenario, seeds []uint64) ([]*sim.Result, error) {
	var all []scenario.Scenario
	for _, seed := range seeds {
		s.Seed = seed
		all = append(all, s)
	}
	return l.run(all)
}

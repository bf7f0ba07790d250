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
	progress func() // a run or a search is done; one at a time

	mu   sync.Mutex
	runs map[string]*outcome

	tally sync.Mutex // of progress
}

type outcome struct {
	ready  chan struct{}
	result *sim.Result
	err    error
}

func newLab(ctx context.Context, jobs int, progress func()) *lab {
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
		defer l.ran()
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

// ran tells that a run or a search is done.
func (l *lab) ran() {
	l.tally.Lock()
	defer l.tally.Unlock()
	l.progress()
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

package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// A lab runs scenarios concurrently, and each scenario only once. Results do not depend on the order in which
// runs end.
type lab struct {
	ctx      context.Context
	pool     capacity.Pool
	store    *runs.Store // nil if nothing is kept
	progress func()      // called after a run or a search, by one goroutine at a time

	mu   sync.Mutex
	runs map[string]func() (*sim.Result, error) // by scenario as JSON; each waits for the result

	tally sync.Mutex // for progress
}

func newLab(ctx context.Context, jobs int, store *runs.Store, progress func()) *lab {
	if jobs < 1 {
		jobs = runtime.GOMAXPROCS(0)
	}
	return &lab{ctx: ctx, pool: capacity.NewPool(jobs), store: store, progress: progress,
		runs: map[string]func() (*sim.Result, error){}}
}

// start starts to run a scenario, unless it is running or was run before. It returns a function that waits
// for the result.
func (l *lab) start(s scenario.Scenario) (func() (*sim.Result, error), error) {
	key, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[string(key)] == nil {
		run := sync.OnceValues(func() (*sim.Result, error) {
			defer l.ran()
			if err := l.pool.Take(l.ctx); err != nil {
				return nil, err
			}
			defer l.pool.Give()
			r, err := runs.Do(l.store, s, func() (*sim.Result, error) { return scenario.Run(l.ctx, s) })
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.Server.System, s.Workload, err)
			}
			return r, nil
		})
		l.runs[string(key)] = run
		go func() { _, _ = run() }()
	}
	return l.runs[string(key)], nil
}

// ran reports that a run or a search is done.
func (l *lab) ran() {
	l.tally.Lock()
	defer l.tally.Unlock()
	l.progress()
}

func (l *lab) run(scenarios []scenario.Scenario) ([]*sim.Result, error) {
	waits, results := make([]func() (*sim.Result, error), len(scenarios)), make([]*sim.Result, len(scenarios))
	var err error
	for i, s := range scenarios {
		if waits[i], err = l.start(s); err != nil {
			return nil, err
		}
	}
	for i, wait := range waits {
		if results[i], err = wait(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (l *lab) seeds(s scenario.Scenario, seeds []uint64) ([]*sim.Result, error) {
	var all []scenario.Scenario
	for _, seed := range seeds {
		s.Seed = seed
		all = append(all, s)
	}
	return l.run(all)
}

package sweep

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// An Outcome is the result of a job.
type Outcome struct {
	Job
	measured
	Error string // why there is no result
}

// measured has the results of a job.
type measured struct {
	Result *sim.Result
	// Range has the results of two further runs: one with the fastest times of iterations that the margin of the cost
	// model allows, and one with the slowest. It is nil in a sweep over rates, or if the cost model has no margin.
	Range []*sim.Result
}

// A State has the outcome of each job of a sweep.
type State struct {
	*Sweep
	Outcomes []*Outcome
}

// Run runs the jobs without a result in the store, the longest first. At most maxRuns of them run concurrently (0
// means one for each processor). Run calls done for each outcome, also of a job that failed; calls do not overlap. It
// returns an error if ctx is canceled or a result cannot be stored.
func (s *Sweep) Run(ctx context.Context, store *runs.Store, maxRuns int, done func(o *Outcome, ran bool)) (*State, error) {
	if maxRuns < 1 {
		maxRuns = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st := &State{Sweep: s, Outcomes: make([]*Outcome, len(s.Jobs))}
	next := make(chan int)
	var telling sync.Mutex
	var workers sync.WaitGroup
	for range min(maxRuns, len(s.Jobs)) {
		workers.Go(func() {
			for i := range next {
				o, ran, err := s.outcome(ctx, store, s.Jobs[i])
				if err != nil {
					cancel(err) // the first one counts
					continue
				}
				st.Outcomes[i] = o
				telling.Lock()
				done(o, ran)
				telling.Unlock()
			}
		})
	}
	for _, i := range s.costly() {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return st, context.Cause(ctx)
}

// costly returns the indexes of the jobs, the most costly job first, so that no long job runs alone at the end.
func (s *Sweep) costly() []int {
	all := make([]int, len(s.Jobs))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.Jobs[b].cost(), s.Jobs[a].cost()) })
	return all
}

// A key has everything on which the result of a job depends, except the program and the trace.
type key struct {
	Scenario scenario.Scenario
	Cost     string
	Margin   *cost.Margin
	Within   bool // with a range
}

// outcome returns the outcome of a job. It runs the job, unless the store has its result; ran is false if the result
// is from the store. If the job fails, its error is in o.Error; err is for a canceled context or a store that cannot
// be written.
func (s *Sweep) outcome(ctx context.Context, store *runs.Store, j Job) (o *Outcome, ran bool, err error) {
	o = &Outcome{Job: j}
	plan, err := s.plan.Vary(s.Grid.scenario(j))
	if err != nil {
		o.Error = err.Error()
		return o, true, nil
	}
	// The key depends on the contents of files, and not on their names, except that the name of the cost file is part of
	// the key. The store adds a digest of the trace to each key. Cost and Margin were computed from the files of the
	// setup, the model and the GPU.
	settings := plan.Scenario
	settings.Trace, settings.Setup, settings.Model, settings.GPU = "", "", "", ""
	var failed error
	o.measured, err = runs.Do(store, key{settings, fmt.Sprintf("%+v", *plan.Model), plan.Setup.Margin(), s.Grid.closed()},
		func() (m measured, _ error) {
			ran = true
			if m.Result, failed = plan.Run(ctx, nil, nil); failed == nil && s.Grid.closed() {
				m.Range, failed = plan.RunWithin(ctx)
			}
			return m, failed
		})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ran, ctx.Err()
	case failed != nil:
		return &Outcome{Job: j, Error: failed.Error()}, ran, nil
	}
	return o, ran, err
}

// Failed returns the jobs without a result.
func (st *State) Failed() (all []*Outcome) {
	for _, o := range st.Outcomes {
		if o.Result == nil {
			all = append(all, o)
		}
	}
	return all
}

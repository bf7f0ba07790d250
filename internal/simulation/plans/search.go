package plans

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"llmmemory/internal/simulation/capacity"
)

func (s *sizer) report(ctx context.Context) (*Report, error) {
	setup := s.plan.Setup
	r := &Report{Scenario: s.plan.Scenario, SLO: s.SLO.String(), slo: s.SLO, system: s.plan.System,
		Setup: fmt.Sprintf("%s on %d x %s", setup.LLM.Name, setup.GPUs(), setup.GPU.Name),
		Load:  s.facts(), Memory: s.memory(), Cost: s.plan.Model.Describe(), Constants: s.plan.Model.Constants()}
	all, err := s.searches(ctx)
	if err != nil {
		return nil, err
	}
	r.Capacity = s.confirmed
	if s.confirmed.Rate == 0 {
		// No other block size or system makes a single request faster.
		r.Verdict = r.text("verdict")
		if s.Question.Target > 0 {
			r.Verdict += fmt.Sprintf("; no number of such servers holds it at %s requests/s", rate(s.Question.Target))
		}
		return r, nil
	}
	for i := range all {
		s.scale(&all[i])
	}
	r.asIs = s.scaled(s.byShortRuns.Rates())
	limits, sizes := len(s.limits()), len(s.blockSizes())
	r.Limits = ranked(all[:limits])
	r.BlockSizes = all[limits:][:sizes]
	bounds := len(all) - len(s.bounds())
	r.Systems = all[limits+sizes : bounds]
	if i := limiting(r.Limits, s.Precision); i >= 0 {
		r.Limit = r.Limits[i].Name
	}
	if r.Take, err = s.take(ctx, r.BlockSizes, r.Systems); err != nil {
		return nil, err
	}
	if s.Question.Target > 0 {
		if r.Target, err = s.target(ctx); err != nil {
			return nil, err
		}
	}
	r.Range = s.rangeOf(all[bounds:])
	r.Verdict = r.text("verdict")
	return r, nil
}

// searches finds the capacity. If it is not 0, it then does three things concurrently. It confirms the capacity with
// long runs. It tries the changes of limits, blockSizes, systems and bounds with short runs, and returns them in this
// order. It tries other numbers of GPUs if the target will need them.
func (s *sizer) searches(ctx context.Context) (changes []Change, err error) {
	trials := slices.Concat(s.limits(), s.blockSizes(), s.systems(), s.bounds())
	s.total = 1 + len(trials)
	if s.found, err = s.load.Find(ctx, s.plan, s.SLO, s.options(capacity.SearchHorizon, nil)); err != nil {
		return nil, err
	}
	if s.confirmed = s.found; s.found.Rate == 0 {
		s.tick(1)
		return nil, nil
	}
	return changes, concurrently(ctx,
		func(ctx context.Context) error {
			err := s.load.Confirm(ctx, s.plan, s.SLO, s.Lasts, s.pool, &s.confirmed)
			if err == nil {
				err = s.load.Curve(ctx, s.plan, s.SLO, s.pool, &s.confirmed)
			}
			s.tick(1)
			return err
		},
		func(ctx context.Context) (err error) {
			if s.byShortRuns = s.found; s.load.Own == 0 { // runs of a trace have one length
				start := s.options(capacity.CompareHorizon, s.found.Rates())
				if s.byShortRuns, err = s.load.Find(ctx, s.plan, s.SLO, start); err != nil {
					return err
				}
			}
			changes, err = s.changes(ctx, trials)
			return err
		},
		func(ctx context.Context) (err error) {
			// One server will almost certainly not sustain the target.
			if s.Question.Target > 1.05*s.found.Rate {
				s.others, err = s.otherServers(ctx)
			}
			return err
		},
	)
}

// concurrently runs the tasks at the same time and waits for all. It returns the first error. When a task fails, the
// context of the others is canceled.
func concurrently(ctx context.Context, tasks ...func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	var once sync.Once
	var first error
	for i := range tasks {
		wait.Go(func() {
			if err := tasks[i](ctx); err != nil {
				once.Do(func() { first = err })
				stop()
			}
		})
	}
	wait.Wait()
	return first
}

// options returns the options of a search whose runs have the length h. If start is not empty, it has a rate for
// each seed, at which the search begins.
func (s *sizer) options(h capacity.Horizon, start []float64) capacity.Options {
	return capacity.Options{Precision: s.Precision, Pool: s.pool, Horizon: h, Start: start}
}

func (s *sizer) tick(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.done += n
	s.total = max(s.total, s.done)
	if s.Progress != nil {
		s.Progress(s.done, s.total)
	}
}

func (s *sizer) facts() Load {
	l := Load{About: s.plan.About, Seeds: s.load.Seeds, Requests: s.load.Requests(), Own: s.load.Own,
		TooLong: s.load.TooLong, LeftOut: s.load.LeftOut}
	if s.plan.Trust != "" {
		l.About = fmt.Sprintf("%s (%s): %s", s.plan.Scenario.Workload, s.plan.Trust, l.About)
	}
	l.Prompt, l.Output = s.load.Means()
	return l
}

func (s *sizer) memory() Memory {
	v := s.plan.Scenario.Server
	m := Memory{TokenBytes: s.plan.Setup.LLM.KVBytesPerToken(), BlockSize: v.BlockSize, Blocks: v.NumGPUBlocks,
		Slots: v.NumGPUBlocks * v.BlockSize, Utilization: s.plan.PoolShare()}
	m.Bytes = m.TokenBytes * int64(m.Slots)
	prompt, output := s.load.Means()
	m.Fit = v.NumGPUBlocks / int(math.Ceil((prompt+output)/float64(v.BlockSize)))
	return m
}

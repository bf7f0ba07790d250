package capacity

import (
	"context"
	"fmt"
	"slices"

	"llmmemory/internal/sim/scenario"
)

// confirmHorizon is o's, or more if the scenario asks for it.
func confirmHorizon(p *scenario.Plan, o Options) Horizon {
	h := o.ConfirmHorizon
	if h == (Horizon{}) {
		h = DefaultHorizon
	}
	h.Seconds = max(h.Seconds, p.Scenario.Duration)
	h.Requests = max(h.Requests, p.Scenario.Requests)
	return h
}

// confirmStep is how far the rates that are confirmed are apart.
const confirmStep = 1.03

// confirm finds the rate that lasts for the horizon under most seeds, those of the
// search and some others, with whole runs on a grid of rates; and answers a step
// below, or more, if it takes that for all seeds to hold. Seeds differ by what
// chance does in an hour: where bursts decide, the answer is further below.
func (l *Load) confirm(ctx context.Context, p *scenario.Plan, slo SLO, o Options, c *Capacity) error {
	k := &confirmation{ctx: ctx, plan: p, slo: slo, pool: o.Pool, horizon: confirmHorizon(p, o)}
	k.sets = append(slices.Clone(l.sets), l.others[:min(o.Confirm, len(l.others))]...)
	k.seeds = append(slices.Clone(l.Seeds), l.otherSeeds[:len(k.sets)-len(l.sets)]...)
	k.held, k.failed = make([]Point, len(k.sets)), make([]Point, len(k.sets))
	rate := c.Rate
	up := 0
	for ; ; up++ { // to the first rate that does not last
		n, err := k.try(rate)
		if err != nil {
			return err
		}
		if 2*n <= len(k.sets) || up == 20 {
			break
		}
		rate *= confirmStep
	}
	steps := 2
	if len(k.sets) == 1 {
		steps = 1 // a trace: there is no other seed
	}
	for down := 0; ; down++ {
		if down == 40 {
			return fmt.Errorf("%w: %.4g requests/s hold for a short time, and no such rate for %.0f s", ErrShort, c.Rate, k.horizon.Seconds)
		}
		rate /= confirmStep
		n, err := k.try(rate)
		if err != nil {
			return err
		}
		if 2*n > len(k.sets) {
			if steps--; steps <= 0 && n == len(k.sets) {
				c.Rate, c.Held, c.Tried = rate, n, len(k.sets)
				break
			}
		}
	}
	// What a run at the answer itself shows is reported.
	c.Confirmed = make([]Point, len(l.sets))
	return each(len(l.sets), func(i int) error {
		if c.Confirmed[i] = k.held[i]; k.held[i].Holds && k.held[i].Rate == c.Rate {
			return nil
		}
		if err := o.Pool.Take(ctx); err != nil {
			return err
		}
		defer o.Pool.Give()
		var err error
		c.Confirmed[i], err = observe(ctx, p, l.sets[i], l.Seeds[i], c.Rate, slo, k.horizon)
		return err
	})
}

// A confirmation is whole runs under several seeds. A seed that held at a rate is
// not tried below it, nor one that failed above it.
type confirmation struct {
	ctx     context.Context
	plan    *scenario.Plan
	slo     SLO
	pool    Pool
	horizon Horizon
	sets    []*requestSet
	seeds   []uint64
	held    []Point // of each seed, at the highest rate that held
	failed  []Point // at the lowest rate that failed
}

// try runs a rate, and returns how many seeds hold.
func (k *confirmation) try(rate float64) (n int, err error) {
	err = each(len(k.sets), func(i int) error {
		if k.held[i].Holds && rate <= k.held[i].Rate || k.failed[i].Rate > 0 && rate >= k.failed[i].Rate {
			return nil
		}
		if err := k.pool.Take(k.ctx); err != nil {
			return err
		}
		defer k.pool.Give()
		point, err := measureSteady(k.ctx, k.plan, k.sets[i], k.seeds[i], rate, k.slo, k.horizon, true)
		switch {
		case err != nil:
			return err
		case point.Short:
			return fmt.Errorf("%w: %s", ErrShort, point.Reason)
		case point.Holds:
			k.held[i] = point
		default:
			k.failed[i] = point
		}
		return nil
	})
	for i := range k.sets {
		if k.held[i].Holds && rate <= k.held[i].Rate {
			n++
		}
	}
	return n, err
}

// curve measures what the scenario does at parts of the capacity. Runs end at the
// search's horizon, or where the queue grows without end.
func (l *Load) curve(ctx context.Context, p *scenario.Plan, slo SLO, o Options, c *Capacity) error {
	c.Curve = make([]Step, len(o.Curve))
	return each(len(o.Curve), func(i int) error {
		step := Step{Rate: c.Rate * o.Curve[i], Points: make([]Point, len(l.sets))}
		for k, set := range l.sets {
			if err := o.Pool.Take(ctx); err != nil {
				return err
			}
			point, err := observe(ctx, p, set, l.Seeds[k], step.Rate, slo, *o.Horizon)
			o.Pool.Give()
			if err != nil {
				return err
			}
			step.Points[k] = point
		}
		c.Curve[i] = step
		return nil
	})
}

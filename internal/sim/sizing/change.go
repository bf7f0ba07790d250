package sizing

import (
	"context"
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
)

// A trial is a change that is to be tried.
type trial struct {
	Change
	setup  cost.Setup
	server sim.Server
	slo    capacity.SLO
	times  float64 // what the rate found counts

	within     bool    // the two below replace those of the cost model
	iterations float64 // their times are multiplied by it
	first      float64 // the server's own part of the time to the first token, s
}

// changes finds the capacities of trials, all at the same time. Their rates are those of
// the runs that are compared; see scale.
func (s *sizer) changes(ctx context.Context, trials []trial) ([]Change, error) {
	all := make([]Change, len(trials))
	do := make([]func(context.Context) error, len(trials))
	for i := range trials {
		do[i] = func(ctx context.Context) (err error) {
			all[i], err = s.change(ctx, trials[i])
			s.tick(1)
			return err
		}
	}
	return all, together(ctx, do...)
}

// change finds the capacity of one trial. That it cannot be is no error.
func (s *sizer) change(ctx context.Context, t trial) (Change, error) {
	c := t.Change
	found := s.near
	if !c.Base {
		plan, err := s.plan.With(t.setup, t.server)
		if err == nil && t.within {
			plan = plan.Within(t.iterations, t.first)
		}
		if err == nil {
			found, err = s.load.Find(ctx, plan, t.slo, s.compare(s.near.Rates()))
		}
		switch {
		case ctx.Err() != nil:
			return c, ctx.Err()
		case errors.Is(err, sim.ErrConfig), errors.Is(err, cost.ErrMemory), errors.Is(err, cost.ErrFile),
			errors.Is(err, capacity.ErrUnbounded):
			c.Trouble = err.Error()
			return c, nil
		case errors.Is(err, capacity.ErrShort):
			c.Trouble = "too few requests for an answer"
			return c, nil
		case err != nil && c.Is == BlockSize:
			return c, fmt.Errorf("block size %s: %w", c.Name, err)
		case err != nil:
			return c, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	c.rates = found.Rates()
	for i := range c.rates {
		c.rates[i] *= t.times
	}
	c.Gain, c.GainLow, c.GainHigh = gains(c.rates, s.near.Rates())
	return c, nil
}

// scale gives a change the rates that it has relative to what is answered.
func (s *sizer) scale(c *Change) {
	if c.Trouble != "" {
		return
	}
	c.rates = s.scaled(c.rates)
	c.Rate, c.Low, c.High = s.base.Rate*(1+c.Gain), s.base.Rate*(1+c.GainLow), s.base.Rate*(1+c.GainHigh)
}

// scaled returns rates of the runs that are compared as they are to what is answered.
func (s *sizer) scaled(rates []float64) []float64 {
	all := make([]float64, len(rates))
	for i := range rates {
		all[i] = rates[i] * s.base.Rate / s.near.Rate
	}
	return all
}

// gains compare rates seed by seed, where there is something to compare with.
func gains(rates, base []float64) (median, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	var all []float64
	for i := range rates {
		if base[i] == 0 {
			continue
		}
		g := rates[i]/base[i] - 1
		all = append(all, g)
		low, high = min(low, g), max(high, g)
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	return capacity.Median(all), low, high
}

// name returns the model and the GPUs, however they were named.
func (s *sizer) name() string {
	c := s.plan.Setup
	return fmt.Sprintf("%s on %d x %s", c.LLM.Name, c.GPUs(), c.GPU.Name)
}

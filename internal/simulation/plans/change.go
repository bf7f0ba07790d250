package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
)

// Kind names the resource or setting that a Change changes.
type Kind string

const (
	KVMemory  Kind = "KV memory"
	Sequences Kind = "sequences at once"
	Budget    Kind = "tokens of an iteration"
	Time      Kind = "iteration time"

	// These two are for comparison and never the limit.
	Whole     Kind = "whole server"
	Objective Kind = "objective"

	BlockSize Kind = "block size"
	System    Kind = "system"
)

// A trial is a change to try.
type trial struct {
	Change
	setup      cost.Setup
	server     sim.Server
	slo        capacity.SLO
	rateFactor float64 // by which the rate that the search finds is multiplied

	// If iterationFactor is not 0, the time of every iteration is multiplied by it, and firstToken (in s) replaces the
	// cost model's FirstToken.
	iterationFactor, firstToken float64
}

// trial returns a trial without changes.
func (s *sizer) trial(name string, kind Kind) trial {
	return trial{Change: Change{Name: name, Kind: kind}, setup: s.plan.Setup, server: s.plan.Scenario.Server, slo: s.SLO,
		rateFactor: 1}
}

func (s *sizer) limits() (all []trial) {
	add := func(name string, kind Kind, change func(*trial)) {
		t := s.trial(name, kind)
		change(&t)
		all = append(all, t)
	}
	add("twice the KV memory", KVMemory, func(t *trial) {
		t.server.NumGPUBlocks *= 2
		t.server.BatchSize *= 2 // FasterTransformer's is what fits
	})
	if s.plan.System.Memory != sim.Static {
		add("twice --max-seqs", Sequences, func(t *trial) { t.server.MaxNumSeqs *= 2 })
		add("twice --max-tokens", Budget, func(t *trial) { t.server.MaxNumBatchedTokens *= 2 })
	}
	faster := func(name string, change func(*cost.Setup)) {
		add(name, Time, func(t *trial) {
			t.setup = s.plan.Timing
			if t.setup.Linear != nil {
				line := *t.setup.Linear
				t.setup.Linear = &line
			}
			change(&t.setup)
			t.setup.Name += ", " + name
		})
	}
	if s.plan.Timing.Linear != nil {
		faster("half the fixed time of an iteration", func(f *cost.Setup) { f.Linear.Base /= 2 })
		faster("half the time for each sequence", func(f *cost.Setup) { f.Linear.Seq /= 2 })
		faster("half the time for each context token", func(f *cost.Setup) { f.Linear.Context /= 2 })
		faster("half the time for each prompt token", func(f *cost.Setup) { f.Linear.Prompt /= 2 })
	} else {
		faster("twice the GPU's memory bandwidth", func(f *cost.Setup) { f.GPU.Bandwidth *= 2 })
		faster("twice the GPU's FLOPS", func(f *cost.Setup) {
			f.GPU.FP16 *= 2
			f.GPU.FP8 *= 2
			f.GPU.INT8 *= 2
			f.GPU.INT4 *= 2
		})
		faster("half the overhead (launches, scheduling)", func(f *cost.Setup) {
			f.Engine.Base /= 2
			f.Engine.Layer /= 2
			f.Engine.PromptLayer /= 2
			f.Engine.Seq /= 2
		})
		if s.plan.Timing.Workers > 1 {
			faster("twice the link between GPUs", func(f *cost.Setup) {
				f.GPU.WorkerLink *= 2
				f.GPU.LinkLatency /= 2
			})
		}
	}
	add("objectives twice as lax", Objective, func(t *trial) { t.slo = s.SLO.Times(2) })
	// If a server did everything twice as fast, its latencies at any rate would be half of the latencies of the
	// unchanged server at half that rate. The search therefore runs the unchanged server with limits that are twice as
	// long, and the rate that it finds is doubled.
	add("everything twice as fast", Whole, func(t *trial) { t.slo, t.rateFactor = s.SLO.Times(2), 2 })
	return all
}

func ranked(all []Change) []Change {
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(b.Gain, a.Gain) })
	return all
}

// limiting returns the index of the first change in ranked that gains more than precision under every seed, or -1 if
// there is none. Changes of the kinds Whole and Objective do not count, because they are only for comparison.
func limiting(ranked []Change, precision float64) int {
	return slices.IndexFunc(ranked, func(c Change) bool {
		return c.Kind != Whole && c.Kind != Objective && c.Trouble == "" && c.GainLow > precision
	})
}

// changes finds the capacities of trials concurrently. It uses short runs. The caller must call scale for each result,
// to convert its rates to those of long runs.
func (s *sizer) changes(ctx context.Context, trials []trial) ([]Change, error) {
	all := make([]Change, len(trials))
	tasks := make([]func(context.Context) error, len(trials))
	for i := range trials {
		tasks[i] = func(ctx context.Context) (err error) {
			all[i], err = s.change(ctx, trials[i])
			s.tick(1)
			return err
		}
	}
	return all, concurrently(ctx, tasks...)
}

// change finds the capacity of one trial. If the trial cannot be run, change returns the reason in
// Change.Trouble, and no error.
func (s *sizer) change(ctx context.Context, t trial) (Change, error) {
	c := t.Change
	found := s.byShortRuns
	if !c.Base {
		plan, err := s.plan.With(t.setup, t.server)
		if err == nil && t.iterationFactor > 0 {
			plan = plan.Within(t.iterationFactor, t.firstToken)
		}
		if err == nil {
			found, err = s.load.Find(ctx, plan, t.slo, s.options(capacity.CompareHorizon, s.byShortRuns.Rates()))
		}
		switch {
		case ctx.Err() != nil:
			return c, ctx.Err()
		case errors.Is(err, capacity.ErrShort):
			c.Trouble = "too few requests for an answer"
			return c, nil
		case doesNotFit(err), errors.Is(err, sim.ErrConfig), errors.Is(err, capacity.ErrUnbounded):
			c.Trouble = err.Error()
			return c, nil
		case err != nil && c.Kind == BlockSize:
			return c, fmt.Errorf("block size %s: %w", c.Name, err)
		case err != nil:
			return c, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	c.rates = found.Rates()
	for i := range c.rates {
		c.rates[i] *= t.rateFactor
	}
	c.Gain, c.GainLow, c.GainHigh = gains(c.rates, s.byShortRuns.Rates())
	return c, nil
}

func doesNotFit(err error) bool {
	return errors.Is(err, cost.ErrMemory) || errors.Is(err, cost.ErrFile)
}

// tooFewRequests reports whether a search found no rate because its runs have too few requests.
func tooFewRequests(err error) bool {
	return errors.Is(err, capacity.ErrUnbounded) || errors.Is(err, capacity.ErrShort)
}

// scale converts the rates of a change, which short runs found, to the rates that long runs would probably find. Long
// runs found the capacity of the unchanged server, s.confirmed. scale sets c.Rate, c.Low and c.High to this capacity,
// raised or lowered by the change's gains. It does nothing if c.Trouble is set.
func (s *sizer) scale(c *Change) {
	if c.Trouble != "" {
		return
	}
	c.rates = s.scaled(c.rates)
	c.Rate, c.Low, c.High = s.confirmed.Rate*(1+c.Gain), s.confirmed.Rate*(1+c.GainLow), s.confirmed.Rate*(1+c.GainHigh)
}

// scaled converts rates that short runs found. It multiplies them by the ratio of two capacities of the unchanged
// server: the one in the report, which long runs found, and the one that short runs found.
func (s *sizer) scaled(rates []float64) []float64 {
	all := make([]float64, len(rates))
	for i := range rates {
		all[i] = rates[i] * s.confirmed.Rate / s.byShortRuns.Rate
	}
	return all
}

// gains returns the median, the smallest and the greatest of rates[i]/base[i] - 1, where i is a seed. It
// omits seeds with a base of 0.
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

package sizing

import (
	"slices"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
)

// Kind names the resource or setting that a Change changes.
type Kind string

const (
	KVMemory  Kind = "KV memory"
	Sequences Kind = "sequences at once"
	Budget    Kind = "tokens of an iteration"
	Time      Kind = "iteration time"

	// These two always help, or say something else, and so are never the limit.
	Whole     Kind = "whole server"
	Objective Kind = "objective"

	BlockSize Kind = "block size"
	System    Kind = "system"
)

// limits returns trials that make one thing twice as good.
func (s *sizer) limits() []trial {
	v := s.plan.Scenario.Server
	setup := s.plan.Setup
	var all []trial
	add := func(name string, kind Kind, setup cost.Setup, server sim.Server) *trial {
		all = append(all, trial{Change: Change{Name: name, Is: kind}, setup: setup, server: server, slo: s.SLO, times: 1})
		return &all[len(all)-1]
	}
	more := v
	more.NumGPUBlocks *= 2
	more.BatchSize *= 2 // FasterTransformer's is what fits
	add("twice the KV memory", KVMemory, setup, more)
	if s.plan.System.Memory != sim.Static {
		more = v
		more.MaxNumSeqs *= 2
		add("twice --max-seqs", Sequences, setup, more)
		more = v
		more.MaxNumBatchedTokens *= 2
		add("twice --max-tokens", Budget, setup, more)
	}
	for _, f := range s.faster() {
		add(f.name, Time, f.setup, v)
	}
	add("objectives twice as lax", Objective, setup, v).slo = s.SLO.Times(2)
	// A clock that runs at half the speed for all but arrivals and limits.
	all2 := add("everything twice as fast", Whole, setup, v)
	all2.slo, all2.times = s.SLO.Times(2), 2
	return all
}

// A fast setup spends half the time on one part of an iteration.
type fast struct {
	name  string
	setup cost.Setup
}

func (s *sizer) faster() []fast {
	setup := s.plan.Timing
	var all []fast
	add := func(name string, change func(*cost.Setup)) {
		f := setup
		if f.Linear != nil {
			line := *f.Linear
			f.Linear = &line
		}
		change(&f)
		f.Name += ", " + name
		all = append(all, fast{name, f})
	}
	if setup.Linear != nil {
		add("half the fixed time of an iteration", func(f *cost.Setup) { f.Linear.Base /= 2 })
		add("half the time for each sequence", func(f *cost.Setup) { f.Linear.Seq /= 2 })
		add("half the time for each context token", func(f *cost.Setup) { f.Linear.Context /= 2 })
		add("half the time for each prompt token", func(f *cost.Setup) { f.Linear.Prompt /= 2 })
		return all
	}
	add("twice the GPU's memory bandwidth", func(f *cost.Setup) { f.GPU.Bandwidth *= 2 })
	add("twice the GPU's FLOPS", func(f *cost.Setup) {
		f.GPU.FP16 *= 2
		f.GPU.FP8 *= 2
		f.GPU.INT8 *= 2
		f.GPU.INT4 *= 2
	})
	add("half the overhead (launches, scheduling)", func(f *cost.Setup) {
		f.Engine.Base /= 2
		f.Engine.Layer /= 2
		f.Engine.PromptBase /= 2
		f.Engine.PromptLayer /= 2
		f.Engine.Seq /= 2
	})
	if setup.Workers > 1 {
		add("twice the link between GPUs", func(f *cost.Setup) {
			f.GPU.WorkerLink *= 2
			f.GPU.LinkLatency /= 2
		})
	}
	return all
}

// ranked sorts changes from the greatest gain to the least.
func ranked(all []Change) []Change {
	slices.SortStableFunc(all, func(a, b Change) int {
		switch {
		case a.Gain > b.Gain:
			return -1
		case a.Gain < b.Gain:
			return 1
		}
		return 0
	})
	return all
}

// limiting returns the change with the greatest gain, if it is one for every seed;
// else -1.
func limiting(ranked []Change, precision float64) int {
	return slices.IndexFunc(ranked, func(c Change) bool {
		return c.Is != Whole && c.Is != Objective && c.Trouble == "" && c.GainLow > precision
	})
}

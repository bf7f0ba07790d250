package plans

import (
	"context"
	"fmt"
	"slices"

	"llmmemory/internal/simulation/sim"
)

// Take is the recommended block size and system. It is vLLM's default, unless something else gains under every seed.
type Take struct {
	BlockSize int    `json:"blockSize"`
	System    string `json:"system"` // with its flags
	Both      Change `json:"both"`   // the capacity with both
	Reason    string `json:"reason"`
}

const defaultBlock = 16

var blockSizes = []int{8, 16, 32, 64, 128}

// A policy is a scheduler and the flags that change its decisions.
type policy struct {
	system                           string
	swap, chunked, caching, uncached bool
}

func (p policy) String() string {
	name := p.system
	for _, f := range []struct {
		set  bool
		flag string
	}{{p.swap, " --swap"}, {p.chunked, " --chunked"}, {p.caching, " --caching"}, {p.uncached, " --no-caching"}} {
		if f.set {
			name += f.flag
		}
	}
	return name
}

func policyOf(v sim.Server) policy {
	return policy{v.System, v.Swap, v.Chunked, v.Caching, v.NoCaching}
}

// serverWith returns the scenario's server with another policy and block size, and as many blocks as fit in the same
// memory. If the user gave no watermark or batch size, the server has 0 for it, so that it gets the new system's
// default. The limits of an iteration stay the same.
func (s *sizer) serverWith(p policy, block int) sim.Server {
	v, asked := s.plan.Scenario.Server, s.Scenario.Server
	v.Watermark, v.BatchSize = asked.Watermark, asked.BatchSize
	v.System, v.Swap, v.Chunked, v.Caching, v.NoCaching = p.system, p.swap, p.chunked, p.caching, p.uncached
	v.NumGPUBlocks = v.NumGPUBlocks * v.BlockSize / block
	v.NumCPUBlocks = v.NumCPUBlocks * v.BlockSize / block
	v.BlockSize = block
	return v
}

func (s *sizer) served(name string, kind Kind, p policy, block int) trial {
	t := s.trial(name, kind)
	t.server, t.sys, t.size = s.serverWith(p, block), p, block
	t.Base = p == policyOf(s.plan.Scenario.Server) && block == s.plan.Scenario.Server.BlockSize
	return t
}

func (s *sizer) blockSizes() []trial {
	base := s.plan.Scenario.Server
	var all []trial
	for _, size := range insert(blockSizes, base.BlockSize) {
		all = append(all, s.served(fmt.Sprint(size), BlockSize, policyOf(base), size))
	}
	return all
}

// insert returns a sorted list with size added, if the list does not contain it.
func insert(sizes []int, size int) []int {
	i, found := slices.BinarySearch(sizes, size)
	if found {
		return sizes
	}
	return slices.Insert(slices.Clone(sizes), i, size)
}

// systems returns trials of vLLM's default scheduler with and without prefix caching, and of the scenario's
// own system.
func (s *sizer) systems() []trial {
	base := s.plan.Scenario.Server
	list := []policy{{system: sim.DefaultSystem}, {system: sim.DefaultSystem, uncached: true}}
	if userPolicy := policyOf(base); !slices.Contains(list, userPolicy) {
		list = append(list, userPolicy)
	}
	var all []trial
	for _, p := range list {
		all = append(all, s.served(p.String(), System, p, base.BlockSize))
	}
	return all
}

func (s *sizer) take(ctx context.Context, sizes, systems []Change) (Take, error) {
	size, sizeReason := s.choose(sizes, func(c Change) bool { return c.size == defaultBlock })
	system, systemReason := s.choose(systems, func(c Change) bool { return c.sys == policy{system: sim.DefaultSystem} })
	t := Take{BlockSize: size.size, System: system.Name,
		Reason: fmt.Sprintf("block size %s: %s; %s: %s", size.Name, sizeReason, system.Name, systemReason)}
	both := s.served(fmt.Sprintf("%s, block size %s", system.Name, size.Name), System, system.sys, size.size)
	var err error
	t.Both, err = s.change(ctx, both)
	s.scale(&t.Both)
	return t, err
}

// With one or two seeds, a change must raise the capacity by more than fewSeedsWorth to count, or by more than the
// precision of the search if that is larger. The reason is that a limit for a percentile of the latency depends on a
// few requests when the rate is near the capacity. Even a change without effect may therefore move the capacity by up
// to 5 %. With enoughSeeds, such a change raises the capacity under some seeds and lowers it under others, so it does
// not count anyway.
const (
	enoughSeeds   = 3
	fewSeedsWorth = 0.07
)

func (s *sizer) worth(seeds int) float64 {
	if seeds < enoughSeeds {
		return max(s.Precision, fewSeedsWorth)
	}
	return s.Precision
}

// choose returns the change with the largest median gain over the default, among those whose gain is more than
// s.worth under every seed. If there is none, it returns the default. If no rate was found for the default, it
// returns the change with the highest rate. reason explains the choice for the report.
func (s *sizer) choose(all []Change, isDefault func(Change) bool) (best Change, reason string) {
	for _, c := range all {
		if isDefault(c) {
			best = c
		}
	}
	usual := best
	gain := 0.0
	for _, c := range all {
		if c.Trouble != "" {
			continue
		}
		if usual.Trouble != "" || len(usual.rates) == 0 {
			if len(best.rates) == 0 || c.Rate > best.Rate {
				best = c
			}
			continue
		}
		if median, low, _ := gains(c.rates, usual.rates); low > s.worth(len(usual.rates)) && median > gain {
			best, gain = c, median
		}
	}
	switch {
	case usual.Trouble != "" || len(usual.rates) == 0:
		return best, "vLLM's default cannot be had"
	case gain > 0:
		return best, fmt.Sprintf("%s over %s", percent(gain), usual.Name)
	}
	seeds := "under every seed"
	if n := len(usual.rates); n < enoughSeeds {
		seeds = "(less may be chance)"
	}
	return best, fmt.Sprintf("vLLM's default, nothing is more than %.2g %% better %s", 100*s.worth(len(usual.rates)),
		seeds)
}

package scenario

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/simulation/sim"
)

// Check returns an error if settings contradict each other, or if none of the systems looks at one of them: the result
// would be taken for what was asked. "" is the default system. Open does not call it, because a setting may be for one
// of several systems.
func (s *Scenario) Check(systems ...string) error {
	v := &s.Server
	if v.Caching && v.NoCaching {
		return bad("--caching and --no-caching: take one of them")
	}
	if s.SwapGB != 0 && !v.Swap {
		return bad("--swap-gb-s does nothing without --swap")
	}
	if s.MemoryUtilization != 0 && v.NumGPUBlocks != 0 {
		return bad("--memory-utilization does nothing with --blocks: take one of them")
	}
	if s.Decoding.Beam && s.Decoding.Samples < 2 {
		return bad("--beam: a beam of %d is none: add --samples 2 or more", s.Decoding.Samples)
	}
	for _, f := range []struct {
		set  bool
		flag string
		used func(*sim.System) bool
	}{
		{v.Swap, "--swap", func(s *sim.System) bool { return s.CanSwap }},
		{v.Chunked, "--chunked", func(s *sim.System) bool { return s.CanChunk || s.Chunks }},
		{v.Caching, "--caching", func(s *sim.System) bool { return s.CanCachePrefixes || s.CachesPrefixes }},
		{v.NoCaching, "--no-caching", func(s *sim.System) bool { return s.CachesPrefixes }},
		{v.Prefix != 0, "--prefix", func(s *sim.System) bool { return s.KeepsPrefix }},
		{v.BatchSize != 0, "--batch", func(s *sim.System) bool { return s.UsesBatchSize }},
		{v.NumCPUBlocks != 0, "--cpu-blocks", func(s *sim.System) bool { return s.UsesCPUBlocks }},
		{v.Watermark != 0, "--watermark", func(s *sim.System) bool { return s.UsesWatermark }},
		{v.MaxNumBatchedTokens != 0, "--max-tokens", func(s *sim.System) bool { return s.UsesLimits }},
		{v.MaxNumSeqs != 0, "--max-seqs", func(s *sim.System) bool { return s.UsesLimits }},
	} {
		if f.set {
			if err := checkFlag(f.flag, sim.SystemsThat(f.used), systems); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFlag refuses a flag that only systems in by look at, if none of them runs.
func checkFlag(flag string, by, systems []string) error {
	for _, system := range systems {
		if system == "" {
			system = sim.DefaultSystem
		}
		if slices.Contains(by, system) || !slices.Contains(sim.Systems(), system) { // an unknown one is refused later
			return nil
		}
	}
	system := strings.Join(systems, ", ")
	if system == "" { // as run and plan have it without --system
		system = sim.DefaultSystem + ", the default"
	}
	return bad("%s does nothing with %s: it is for %s", flag, system, strings.Join(by, ", "))
}

// More than these is no server's, and would end for want of memory or time.
const (
	mostRate   = 1e6
	mostAmount = 1e9 // seconds, requests and others
)

// An amount is a number with the text that names it in an error.
type amount struct {
	what        string
	value, most float64
}

// checkAmounts refuses numbers that no run has.
func checkAmounts(all ...amount) error {
	for _, n := range all {
		if !(n.value >= 0 && n.value <= n.most) {
			return bad(n.what+": want 0 to %.0f", n.value, n.most)
		}
	}
	return nil
}

// bad returns an error that wraps ErrScenario.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...)
}

package scenario

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/simulation/sim"
)

// Check returns an error if settings contradict each other, or if none of the systems uses a setting. A
// system "" is the default one. Open does not call Check, because a scenario may be run with several systems,
// only some of which use a setting.
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
		return bad("--beam needs at least 2 sequences, not %d: add --samples 2 or more", s.Decoding.Samples)
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

// checkFlag returns an error if the flag has no effect. The flag has an effect only with the systems in users.
// systems has the systems that will be run.
func checkFlag(flag string, users, systems []string) error {
	for _, system := range systems {
		if system == "" {
			system = sim.DefaultSystem
		}
		if slices.Contains(users, system) || !slices.Contains(sim.Systems(), system) { // Open reports unknown systems
			return nil
		}
	}
	system := strings.Join(systems, ", ")
	if system == "" { // run and plan without --system
		system = sim.DefaultSystem + ", the default"
	}
	return bad("%s does nothing with %s: it is for %s", flag, system, strings.Join(users, ", "))
}

// A run with larger values would exhaust memory or time.
const (
	maxRate   = 1e6 // requests/s
	maxAmount = 1e9 // seconds, requests and others
)

// An amount is a number that must be from 0 to max. format, such as "%v requests", is the text about the number in the
// error for a number outside this range.
type amount struct {
	format     string
	value, max float64
}

// checkAmounts returns an error if a number is out of its range.
func checkAmounts(all ...amount) error {
	for _, n := range all {
		if !(n.value >= 0 && n.value <= n.max) {
			return bad(n.format+": want 0 to %.0f", n.value, n.max)
		}
	}
	return nil
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...)
}

package scenario

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/sim"
)

// Check returns an error if settings contradict each other, or if none of the systems looks at one of them: the result
// would be taken for what was asked. "" is the default system. Open does not call it, because a setting may be for one
// of several systems.
func (s *Scenario) Check(systems ...string) error {
	v := &s.Server
	if v.Caching && v.NoCaching {
		return fmt.Errorf("%w: --caching and --no-caching: take one of them", ErrScenario)
	}
	if s.SwapGB != 0 && !v.Swap {
		return fmt.Errorf("%w: --swap-gb-s does nothing without --swap", ErrScenario)
	}
	if s.MemoryUtilization != 0 && v.NumGPUBlocks != 0 {
		return fmt.Errorf("%w: --memory-utilization does nothing with --blocks: take one of them", ErrScenario)
	}
	if s.Decoding.Beam && s.Decoding.Samples < 2 {
		return fmt.Errorf("%w: --beam: a beam of %d is none: add --samples 2 or more", ErrScenario, s.Decoding.Samples)
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
	return fmt.Errorf("%w: %s does nothing with %s: it is for %s", ErrScenario, flag, system, strings.Join(by, ", "))
}

// More than these is no server's, and would end for want of memory or time.
const (
	mostRate   = 1e6
	mostAmount = 1e9 // seconds, requests and others
)

// checkAmounts refuses numbers that no run has.
func (s *Scenario) checkAmounts() error {
	for _, n := range []struct {
		what        string
		value, most float64
	}{
		{"a rate of %v requests a second", s.Rate, mostRate}, {"a duration of %v s", s.Duration, mostAmount},
		{"averages from %v s", s.From, mostAmount}, {"averages until %v s", s.Until, mostAmount},
		{"a burstiness of %v", s.Burstiness, mostAmount}, {"requests at once: %v", float64(s.MaxConcurrency), mostAmount},
		{"turns of a conversation: %v", s.Turns, mostAmount}, {"seconds between turns: %v", s.Think, mostAmount},
	} {
		if !(n.value >= 0 && n.value <= n.most) {
			return fmt.Errorf("%w: "+n.what+": want 0 to %.0f", ErrScenario, n.value, n.most)
		}
	}
	switch {
	case s.Requests < 0:
		return fmt.Errorf("%w: %d requests: want at least 1, or 0 for those of the duration", ErrScenario, s.Requests)
	case s.Requests == 0 && s.Trace == "" && s.Rate*s.Duration > mostAmount:
		return fmt.Errorf("%w: %g requests a second for %g s: want at most %.0f requests", ErrScenario, s.Rate, s.Duration,
			float64(mostAmount))
	case s.end() > 0 && s.From >= s.end():
		return fmt.Errorf("%w: averages from %v s until %v s are of nothing: begin earlier, or end later", ErrScenario,
			s.From, s.end())
	case s.random() && (s.Trace != "" || s.Workload != ""):
		return fmt.Errorf("%w: requests have lengths of their own (--input-len, --output-len, --range-ratio), or are of a "+
			"workload or a trace: take one of them", ErrScenario)
	case s.Trace != "" && s.Workload != "":
		return fmt.Errorf("%w: requests are of the workload %q or of the trace %q, not of both", ErrScenario, s.Workload,
			s.Trace)
	}
	return nil
}

// checkClients returns an error for flags of arrivals that do not go together.
func (s *Scenario) checkClients() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...)
	}
	switch {
	case s.Trace != "" && s.Burstiness != 0:
		return bad("a burstiness of %v: a trace says itself when requests come", s.Burstiness)
	case s.AtOnce && (s.Burstiness != 0 || s.Rate != 0 || s.Duration != 0):
		return bad("requests that all come at once have no rate, duration or burstiness")
	case s.AtOnce && s.Trace == "" && s.Requests == 0:
		return bad("requests that all come at once need a number: --requests")
	case s.Turns > 0 && s.Turns < 1:
		return bad("conversations of %v turns: want at least 1", s.Turns)
	case s.Think > 0 && s.Turns == 0:
		return bad("pauses of %v s are between turns of a conversation: say how many there are (--turns)", s.Think)
	}
	return nil
}

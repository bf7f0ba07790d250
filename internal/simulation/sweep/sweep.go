package sweep

import (
	"fmt"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// A Job is one run of a sweep.
type Job struct {
	System         string
	BlockSize      int
	Rate           float64
	MaxConcurrency int // of Grid.Concurrencies
	Seed           uint64
	Requests       int // expected number of arrivals
}

func (j Job) String() string {
	return fmt.Sprintf("%s, blocks of %d, %s, seed %d", j.System, j.BlockSize, j.load(), j.Seed)
}

// cost estimates how long a job takes, in arbitrary units. Systems that cache prefixes take longer, because
// they hash blocks (internal/simulation/README.md, Speed).
func (j Job) cost() int64 {
	n := int64(j.Requests) + 1
	if kind, err := sim.Lookup(j.System); err == nil && kind.CachesPrefixes {
		n *= 4
	}
	return n
}

// A Sweep has a grid and its jobs.
type Sweep struct {
	Grid  Grid
	About string // model and requests
	Jobs  []Job

	plan *scenario.Plan // of one of the jobs; it has read the trace
}

// Open returns the sweep of a grid after checking all names and jobs.
func Open(g Grid) (*Sweep, error) {
	g, err := g.ordered()
	if err != nil {
		return nil, err
	}
	s := &Sweep{Grid: g, plan: new(scenario.Plan), Jobs: g.jobs()}
	for i := range s.Jobs {
		if err := s.open(&s.Jobs[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Jobs[i], err)
		}
	}
	s.About = fmt.Sprintf("Model: %s. Requests: %s.", s.plan.Setup.Name, s.plan.About)
	if m := s.plan.Setup.Margin(); m != nil {
		s.About += fmt.Sprintf(" Times: %s.", m)
	}
	return s, nil
}

func (s *Sweep) open(j *Job) error {
	plan, err := s.plan.Vary(s.Grid.scenario(*j))
	if err != nil {
		return err
	}
	if err := plan.Scenario.Decoding.Check(j.System); err != nil {
		return err
	}
	s.plan = plan
	j.Requests = plan.Expected()
	return nil
}

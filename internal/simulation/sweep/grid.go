package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// ErrGrid is wrapped by errors about a Grid.
var ErrGrid = errors.New("bad grid")

// A Grid describes a run, called a job, for each combination of its values.
type Grid struct {
	Base       scenario.Scenario // its system, block size, rate and seed are not used
	Systems    []string
	BlockSizes []int     // tokens
	Rates      []float64 // requests/s
	// Concurrencies replace Rates: each is a number of clients, which send their next request when they have
	// an answer.
	Concurrencies []int
	Seeds         []uint64
}

const maxJobs = 100_000

// ordered checks a grid, and returns it with its lists in the order in which jobs are run and written.
func (g Grid) ordered() (Grid, error) {
	var err error
	known := sim.Systems()
	for _, name := range g.Systems {
		if !slices.Contains(known, name) {
			return g, fmt.Errorf("%w: there is no system %q: want some of %v", ErrGrid, name, known)
		}
	}
	for _, size := range g.BlockSizes {
		if size < 1 {
			return g, fmt.Errorf("%w: blocks of %d tokens: want at least 1", ErrGrid, size)
		}
	}
	for _, rate := range g.Rates {
		if !(rate > 0) || math.IsInf(rate, 0) {
			return g, fmt.Errorf("%w: a rate of %v requests a second: want more than 0", ErrGrid, rate)
		}
	}
	if g.Systems, err = sorted("system", g.Systems,
		func(a, b string) int { return slices.Index(known, a) - slices.Index(known, b) }); err != nil {
		return g, err
	}
	if g.BlockSizes, err = sorted("block size", g.BlockSizes, cmp.Compare); err != nil {
		return g, err
	}
	if g.closed() {
		if g.Rates != nil || g.Base.MaxConcurrency != 0 {
			return g, fmt.Errorf("%w: a sweep has either rates or a list of concurrencies", ErrGrid)
		}
		if g.Concurrencies, err = sorted("concurrency", g.Concurrencies, cmp.Compare); err != nil {
			return g, err
		}
		if g.Concurrencies[0] < 1 {
			return g, fmt.Errorf("%w: %d requests at once: want at least 1", ErrGrid, g.Concurrencies[0])
		}
		g.Base.AtOnce = true
	} else if g.Rates, err = sorted("rate", g.Rates, cmp.Compare); err != nil {
		return g, err
	}
	if g.Seeds, err = sorted("seed", g.Seeds, cmp.Compare); err != nil {
		return g, err
	}
	n := float64(len(g.Systems)) * float64(len(g.BlockSizes)) * float64(len(g.loads())) * float64(len(g.Seeds))
	if n > maxJobs {
		return g, fmt.Errorf("%w: %.0f jobs: want at most %d", ErrGrid, n, maxJobs)
	}
	if g.Base.Server.NumGPUBlocks != 0 && len(g.BlockSizes) > 1 {
		return g, fmt.Errorf("%w: %d blocks of different sizes are different memories: leave out the number of blocks, "+
			"and as many as fit are taken", ErrGrid, g.Base.Server.NumGPUBlocks)
	}
	g.Base.Server.System, g.Base.Server.BlockSize, g.Base.Rate, g.Base.Seed = "", 0, 0, 0
	return g, nil
}

// sorted returns a sorted copy of a list. It returns an error if the list is empty or has duplicates.
func sorted[T comparable](name string, all []T, order func(a, b T) int) ([]T, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no %s: want at least one", ErrGrid, name)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, order)
	for i := range all[1:] {
		if all[i] == all[i+1] {
			return nil, fmt.Errorf("%w: the %s %v is there twice", ErrGrid, name, all[i])
		}
	}
	return all, nil
}

func (g Grid) jobs() []Job {
	var all []Job
	for _, system := range g.Systems {
		for _, size := range g.BlockSizes {
			for _, j := range g.loads() {
				for _, seed := range g.Seeds {
					j.System, j.BlockSize, j.Seed = system, size, seed
					all = append(all, j)
				}
			}
		}
	}
	return all
}

func (g Grid) scenario(j Job) scenario.Scenario {
	s := g.Base
	s.Server.System, s.Server.BlockSize, s.Rate, s.Seed = j.System, j.BlockSize, j.Rate, j.Seed
	if g.closed() {
		s.MaxConcurrency = j.MaxConcurrency
	}
	return s
}

// load describes the rate or the concurrency of a job.
func (j Job) load() string {
	if j.MaxConcurrency > 0 {
		return fmt.Sprintf("%d requests at once", j.MaxConcurrency)
	}
	return fmt.Sprintf("%v requests/s", j.Rate)
}

func (g Grid) closed() bool { return g.Concurrencies != nil }

// loads returns jobs with only the rate or the concurrency set, one for each value in the grid.
func (g Grid) loads() []Job {
	var all []Job
	for _, n := range g.Concurrencies {
		all = append(all, Job{MaxConcurrency: n})
	}
	for _, rate := range g.Rates {
		all = append(all, Job{Rate: rate})
	}
	return all
}

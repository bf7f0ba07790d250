package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// ErrUnknown is wrapped when no figure has the name.
var ErrUnknown = errors.New("unknown figure")

// Options of a set of figures.
type Options struct {
	Only     []string                 // names of figures; none: all
	Full     bool                     // latency of the other models, and of vLLM V0 and V1, too
	Quick    bool                     // fewer seeds and shorter runs, for tests
	Jobs     int                      // runs at once; 0: one for each processor
	Runs     *runs.Store              // what was run, so that figures that were interrupted resume; nil: nothing is kept
	Seeds    int                      // of averages; 0: 8. Latency curves take fewer: see Figure.Seeds
	Progress func(done, all int)      // nil; figures so far, after each run
	Drawn    func(chart.Figure) error // nil; called for each figure when it is done
}

// A Report has the figures and the comparisons.
type Report struct {
	Figures []chart.Figure
	Checks  []chart.Check
}

// Misses counts the comparisons that are outside their tolerance.
func (r *Report) Misses() int {
	n := 0
	for i := range r.Checks {
		if !r.Checks[i].OK {
			n++
		}
	}
	return n
}

// A bench is one run of the experiments.
type bench struct {
	*lab
	Options
	report Report
}

type figure struct {
	name, about string
	make        func(*bench) error
}

var figures = []figure{
	{"table1", "blocks and slots that fit (Table 1)", (*bench).table1},
	{"fig1", "what memory holds, and how it grows", (*bench).layout},
	{"fig2", "memory waste by system", (*bench).waste},
	{"fig11", "lengths of prompts and answers", (*bench).lengths},
	{"fig12", "normalized latency against rate", (*bench).latency},
	{"fig13", "batched requests", (*bench).batched},
	{"fig14", "parallel sampling and beam search", (*bench).sampling},
	{"fig15", "memory saved by sharing", (*bench).saving},
	{"fig16", "shared prefix", (*bench).sharedPrefix},
	{"fig17", "chat", (*bench).chat},
	{"fig18", "block size", (*bench).blockSize},
	{"fig18a", "attention over blocks, measured", (*bench).paged},
	{"fig19", "swapping against recomputation", (*bench).swapping},
	{"cost", "times of iterations against published ones", (*bench).costs},
	{"served", "llmserve on one machine, simulated against measured", (*bench).served},
}

// Names lists what Options.Only may select.
func Names() []string {
	var names []string
	for i := range figures {
		names = append(names, figures[i].name)
	}
	return names
}

// Run makes figures and comparisons. Equal options give equal ones, to the byte.
func Run(ctx context.Context, o Options) (*Report, error) {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("%w %q: want %s", ErrUnknown, name, strings.Join(Names(), ", "))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chosen := slices.DeleteFunc(slices.Clone(figures), func(f figure) bool {
		return len(o.Only) > 0 && !slices.Contains(o.Only, f.name)
	})
	var made atomic.Int64
	b := &bench{Options: o, lab: newLab(ctx, o.Jobs, o.Runs, func() {
		if o.Progress != nil {
			o.Progress(int(made.Load()), len(chosen))
		}
	})}
	for _, f := range chosen {
		before := len(b.report.Figures)
		if err := f.make(b); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		made.Add(1)
		for _, drawn := range b.report.Figures[before:] {
			if o.Drawn == nil {
				break
			}
			if err := o.Drawn(drawn); err != nil {
				return nil, err
			}
		}
	}
	return &b.report, nil
}

// averageSeeds returns the seeds of averages: 1 to 8.
func (b *bench) averageSeeds() []uint64 {
	switch {
	case b.Seeds > 0:
		return seedsFrom1(b.Seeds)
	case b.Quick:
		return seedsFrom1(4)
	}
	return seedsFrom1(8)
}

// curveSeeds returns the seeds of latency curves, which take many runs each.
func (b *bench) curveSeeds() []uint64 {
	if b.Quick {
		return seedsFrom1(1)
	}
	return seedsFrom1(3)
}

func seedsFrom1(n int) []uint64 {
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, uint64(i+1))
	}
	return seeds
}

// seedsLabel returns a figure's line about seeds.
func seedsLabel(seeds []uint64, seconds float64) string {
	length := fmt.Sprintf("%.0f s", seconds)
	if len(seeds) == 1 {
		return "seed 1, " + length
	}
	return fmt.Sprintf("seeds 1 to %d, %s", len(seeds), length)
}

// label returns the name of a system in figures.
func label(system string) string {
	kind, err := sim.Lookup(system)
	if err != nil {
		return system
	}
	return kind.Label
}

func server(system string) sim.Server { return sim.Server{System: system} }

// add keeps a figure. A system has one colour and one marker in all of them.
func (b *bench) add(f chart.Figure) {
	for _, name := range sim.Systems() {
		f.Fixed = append(f.Fixed, label(name))
	}
	b.report.Figures = append(b.report.Figures, f)
}

// averageOverSeeds runs a scenario with some seeds and averages f over them.
func (b *bench) averageOverSeeds(s scenario.Scenario, seeds []uint64, f func(*sim.Result) float64,
	paper *chart.Range) (chart.Value, error) {
	results, err := b.seeds(s, seeds)
	if err != nil {
		return chart.Value{}, err
	}
	v := average(results, f)
	v.Paper = paper
	return v, nil
}

// average returns the mean and the standard deviation of f over results, one for each seed.
func average(results []*sim.Result, f func(*sim.Result) float64) chart.Value {
	var values []float64
	for _, r := range results {
		values = append(values, f(r))
	}
	return chart.Average(values)
}

// requests, like the functions below, returns a value that is averaged.
func requests(r *sim.Result) float64 { return r.Window.Requests }
func latency(r *sim.Result) float64  { return r.Normalized.Mean }
func saving(r *sim.Result) float64   { return 100 * r.Window.Saving }

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

// Options of Run.
type Options struct {
	Only     []string            // names of figures; if empty, all
	Full     bool                // also latency of the other models, and latency of vLLM V0 and V1
	Quick    bool                // fewer seeds and shorter runs, for tests
	Jobs     int                 // concurrent runs; default one for each processor
	Runs     *runs.Store         // keeps runs, so that interrupted figures resume; may be nil
	Seeds    int                 // of averages; default 8. Latency curves have fewer: see Figure.Seeds
	Progress func(done, all int) // called after each run with the number of figures done, and of all; may be nil
}

// A Report has the figures and the comparisons.
type Report struct {
	Figures []chart.Figure
	Checks  []chart.Check
}

// Misses returns the number of comparisons that are outside their tolerance.
func (r *Report) Misses() (n int) {
	for _, c := range r.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// A bench is a call of Run.
type bench struct {
	*lab
	Options
	report Report
}

type figure struct {
	name string
	make func(*bench) error
}

var figures = []figure{
	{"table1", (*bench).table1},
	{"fig1", (*bench).layout},
	{"fig2", (*bench).waste},
	{"fig11", (*bench).lengths},
	{"fig12", (*bench).latency},
	{"fig13", (*bench).batched},
	{"fig14", (*bench).sampling},
	{"fig15", (*bench).saving},
	{"fig16", (*bench).sharedPrefix},
	{"fig17", (*bench).chat},
	{"fig18", (*bench).blockSize},
	{"fig18a", (*bench).paged},
	{"fig19", (*bench).swapping},
	{"cost", (*bench).costs},
	{"served", (*bench).served},
}

// Names returns the names for Options.Only.
func Names() []string {
	var names []string
	for i := range figures {
		names = append(names, figures[i].name)
	}
	return names
}

// Run makes the figures that the options select. Equal options give equal reports, byte for byte.
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
		if err := f.make(b); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		made.Add(1)
	}
	return &b.report, nil
}

func (b *bench) averageSeeds() []uint64 {
	switch {
	case b.Seeds > 0:
		return seedsFrom1(b.Seeds)
	case b.Quick:
		return seedsFrom1(4)
	}
	return seedsFrom1(8)
}

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

func seedsLabel(seeds []uint64, seconds float64) string {
	length := fmt.Sprintf("%.0f s", seconds)
	if len(seeds) == 1 {
		return "seed 1, " + length
	}
	return fmt.Sprintf("seeds 1 to %d, %s", len(seeds), length)
}

func label(system string) string {
	kind, err := sim.Lookup(system)
	if err != nil {
		return system
	}
	return kind.Label
}

func server(system string) sim.Server { return sim.Server{System: system} }

func bars(title, x string, y chart.YAxis, groups []string, series ...chart.Series) chart.Panel {
	return chart.Panel{Title: title, X: x, Y: y, Data: chart.Bars{Groups: groups, Series: series}}
}

// add adds a figure to the report. A system has the same colour and marker in all figures.
func (b *bench) add(f chart.Figure) {
	for _, name := range sim.Systems() {
		f.Fixed = append(f.Fixed, label(name))
	}
	b.report.Figures = append(b.report.Figures, f)
}

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

func average(results []*sim.Result, f func(*sim.Result) float64) chart.Value {
	var values []float64
	for _, r := range results {
		values = append(values, f(r))
	}
	return chart.Average(values)
}

func requests(r *sim.Result) float64 { return r.Window.Requests }
func latency(r *sim.Result) float64  { return r.Normalized.Mean }
func saving(r *sim.Result) float64   { return 100 * r.Window.Saving }

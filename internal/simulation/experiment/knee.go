package experiment

import (
	"errors"
	"sync"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// threshold is the normalized latency, in s/token, at which the rates of systems are compared. The paper does not
// say which latency it uses. At 0.5 s/token, the ratios in the paper's curves agree with the ratios in its text
// (simulation/PAPER.md §2).
const threshold = 0.5

// A curve has the mean normalized latencies of a system at several rates.
type curve struct {
	system string
	line   chart.Line
	rates  []float64 // requests/s by seed; the highest rate below the threshold
}

var curveParts = []float64{0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 1, 1.03, 1.08}

// curves returns, for each system, its latencies at several rates. The rates are multiples of the highest rate with a
// latency below the threshold (see curveParts). All systems and rates share the requests of a seed, because at high
// rates these take tens of megabytes.
func (b *bench) curves(s scenario.Scenario, systems []string, seeds []uint64) ([]curve, error) {
	s.Seed = seeds[0]
	all, plans := make([]curve, len(systems)), make([]*scenario.Plan, len(systems))
	for i, system := range systems {
		var err error
		s.Server.System = system
		if plans[i], err = scenario.Open(s); err != nil {
			return nil, err
		}
		all[i] = curve{system: system, line: chart.Line{Name: label(system)}}
	}
	load, err := capacity.NewLoad(plans[0], len(seeds))
	if err != nil {
		return nil, err
	}
	load.Keep(b.store)
	var wait sync.WaitGroup
	errs := make([]error, len(all))
	for i := range all {
		wait.Go(func() {
			errs[i] = b.curve(load, plans[i], &all[i])
			b.ran()
		})
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

func (b *bench) curve(load *capacity.Load, plan *scenario.Plan, c *curve) error {
	slo := capacity.SLO{{Metric: capacity.Normalized, Limit: threshold}}
	found, err := load.Knee(b.ctx, plan, slo, curveParts, b.pool)
	if err != nil {
		return err
	}
	c.rates = found.Rates()
	for _, step := range found.Curve {
		var results []*sim.Result
		for _, p := range step.Points {
			results = append(results, p.Result)
		}
		c.line.Points = append(c.line.Points, chart.Point{X: step.Rate, Value: average(results, latency)})
	}
	return nil
}

// latencyPanel returns a panel with curves. Its y axis ends where the paper's does.
func latencyPanel(title string, all []curve) chart.Panel {
	var lines chart.Lines
	for i := range all {
		lines = append(lines, all[i].line)
	}
	return chart.Panel{Title: title, X: "request rate (requests/s)",
		Y: chart.YAxis{Title: "normalized latency (s/token)", Max: 1}, Data: lines}
}

func ratio(a, b *curve, paper *chart.Range) chart.Value {
	var values []float64
	for i := range a.rates {
		values = append(values, a.rates[i]/b.rates[i])
	}
	v := chart.Average(values)
	v.Paper = paper
	return v
}

// ratios returns a panel with the rate that vLLM sustains divided by the rates of other systems.
func ratios(groups []string, values []chart.Value) chart.Panel {
	return bars("rate at 0.5 s/token", "vLLM against", chart.YAxis{Title: "times the rate"}, groups,
		chart.Series{Name: "times the rate at 0.5 s/token", Values: values})
}

package experiment

import (
	"llmmemory/internal/chart"
	"llmmemory/internal/sim"
)

// average returns the mean and the standard deviation of f over results, one for each
// seed.
func average(results []*sim.Result, f func(*sim.Result) float64, paper *chart.Range) chart.Value {
	var values []float64
	for _, r := range results {
		values = append(values, f(r))
	}
	return mean(values, paper)
}

func mean(values []float64, paper *chart.Range) chart.Value {
	v := chart.Average(values)
	v.Paper = paper
	return v
}

// requests, like the functions below, returns a value that is averaged.
func requests(r *sim.Result) float64 { return r.Window.Requests }
func latency(r *sim.Result) float64  { return r.Normalized.Mean }
func saving(r *sim.Result) float64   { return 100 * r.Window.Saving }

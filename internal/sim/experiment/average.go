package experiment

import (
	"math"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/chart"
)

// average is the mean and the standard deviation of f over results, one for each
// seed.
func average(results []*sim.Result, f func(*sim.Result) float64, paper *chart.Range) chart.Value {
	var values []float64
	for _, r := range results {
		values = append(values, f(r))
	}
	return mean(values, paper)
}

func mean(values []float64, paper *chart.Range) chart.Value {
	n := float64(len(values))
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	for _, v := range values {
		squares += (v - sum/n) * (v - sum/n)
	}
	sd := 0.0
	if n > 1 {
		sd = math.Sqrt(squares / (n - 1))
	}
	if sd < 1e-12*math.Abs(sum/n) {
		sd = 0 // rounding
	}
	return chart.Value{Mean: sum / n, SD: sd, Seeds: len(values), Paper: paper}
}

// What is averaged.
func requests(r *sim.Result) float64 { return r.Window.Requests }
func latency(r *sim.Result) float64  { return r.Normalized.Mean }
func saving(r *sim.Result) float64   { return 100 * r.Window.Saving }

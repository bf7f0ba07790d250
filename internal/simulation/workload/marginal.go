package workload

import (
	"math"
	"sort"
)

// A marginal is the distribution of one length, the prompt's or the output's: values[i] is its quantile at levels[i].
// Levels increase from 0 to 1. Values are positive and never decrease. Segment i is between values[i] and values[i+1].
//
// In all segments except the last one, the logarithm of the value is linear in the level. In the last segment, the
// difference between a value and the start of the segment is exponentially distributed, up to the maximum. With this
// rule, draws have nearly the means and standard deviations of ShareGPT (simulation/PAPER.md §1). In 1,000,000 draws,
// prompts had the mean 160.47 and the standard deviation 295.4; outputs had 338.65 and 285.1.
type marginal struct {
	levels, values []float64
	tail           float64 // logarithm of the number of rows in the last segment
}

// quantile returns the quantile at level u.
func (m *marginal) quantile(u float64) float64 {
	i := sort.SearchFloat64s(m.levels, u) - 1
	i = min(max(i, 0), len(m.levels)-2)
	return m.interpolate(i, (u-m.levels[i])/(m.levels[i+1]-m.levels[i]))
}

// interpolate returns the quantile at level t of the lengths in segment i.
func (m *marginal) interpolate(i int, t float64) float64 {
	low, high := m.values[i], m.values[i+1]
	if i == len(m.values)-2 {
		return low + (high-low)*math.Min(1, -math.Log1p(-t)/m.tail)
	}
	return low * math.Pow(high/low, t)
}

func (m *marginal) level(x float64) float64 {
	last := len(m.values) - 1
	if x <= m.values[0] {
		return 0
	}
	if x > m.values[last] {
		return 1
	}
	i := sort.SearchFloat64s(m.values, x) - 1
	low, high := m.values[i], m.values[i+1]
	t := math.Log(x/low) / math.Log(high/low)
	if i == last-1 {
		t = -math.Expm1(-(x - low) / (high - low) * m.tail)
	}
	return m.levels[i] + t*(m.levels[i+1]-m.levels[i])
}

// normal returns the standard normal distribution, and score its inverse.
func normal(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }
func score(u float64) float64  { return -math.Sqrt2 * math.Erfcinv(2*u) }

func toLength(x float64) int { return max(1, int(math.Floor(x+0.5))) }

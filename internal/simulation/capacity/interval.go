package capacity

import (
	"math"
	"slices"
)

// An Interval is the 95 % confidence interval of a value, in seconds.
type Interval struct {
	Low   Seconds `json:"low"`
	High  Seconds `json:"high"`
	Rough bool    `json:"rough,omitempty"` // too few independent values for 95 %
}

// A statistic is a mean or a quantile with its 95 % confidence interval, in s.
type statistic struct {
	Mean, Low, High float64
	rough           bool
	count           int
}

// minRequests returns the number of values that a run needs for a confidence interval of every objective, but at least
// 100. With n values, the probability that at least one of them exceeds the quantile at level q is
//
//	1 - qⁿ
//
// For an objective on a quantile other than the maximum, minRequests takes the smallest n for which this probability is
// at least 97.5 %.
func (s SLO) minRequests() int {
	n := 100
	for _, o := range s {
		n = max(n, minValues(o.Level))
	}
	return n
}

// rank returns the position, from 1, of a quantile among n sorted values (nearest rank).
func rank(level float64, n int) int { return max(1, int(math.Ceil(level*float64(n)-1e-9))) }

func minValues(level float64) int {
	if level <= 0 || level >= 1 {
		return 1
	}
	return int(math.Ceil(math.Log(0.025) / math.Log(level)))
}

// estimateOf returns the mean (level 0) or a quantile of values, and its confidence interval. The values are
// in the order of time, and neighbours are correlated.
//
// For a quantile, it computes the confidence interval of the fraction of values above the quantile. It then converts
// the ends of that interval back to values (Woodruff, Confidence intervals for medians and other position measures,
// JASA 47, 1952). It uses the quantile of all values, because quantiles of parts of a run are biased. The tests count
// how often the interval contains the true value.
func estimateOf(values []float64, level float64) statistic {
	n := len(values)
	if n == 0 {
		return statistic{}
	}
	if level == 0 {
		e := statistic{Mean: mean(values), count: n}
		var half float64
		half, e.rough = halfWidth(values, e.Mean, minForMean)
		e.Low, e.High = e.Mean-half, e.Mean+half
		return e
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	quantile := sorted[rank(level, n)-1]
	if level == 1 {
		return statistic{Mean: quantile, Low: quantile, High: quantile, count: n}
	}
	exceeds := make([]float64, n)
	for i, v := range values {
		if v > quantile {
			exceeds[i] = 1
		}
	}
	half, rough := halfWidth(exceeds, mean(exceeds), max(minIndependent, minAbove/min(level, 1-level)))
	half = max(half, 1.96*math.Sqrt(level*(1-level)/float64(n)))
	e := statistic{Mean: quantile, Low: math.Inf(-1), High: math.Inf(1), rough: rough, count: n}
	if level > half {
		e.Low = sorted[rank(level-half, n)-1]
	}
	if level+half <= 1 {
		e.High = sorted[rank(level+half, n)-1]
	}
	return e
}

// The effective sample size n is the number of independent values that would give as exact an estimate as the
// correlated values of a run. The interval of a mean is rough if n is below minForMean. The interval of a quantile is
// rough in these cases:
//
//   - n is below minIndependent.
//   - Of n values, fewer than minAbove are expected above the quantile.
//   - Of n values, fewer than minAbove are expected below the quantile.
//
// With these numbers, about 5 % of the tested runs, or fewer, have an interval that is not rough and does not contain
// the true value (see TestIntervalsContainTheTruthAsOftenAsTheySay).
const (
	minIndependent = 40
	minAbove       = 5
	minForMean     = 200 // independent values for a mean, which a few large values affect
)

// batchings lists the numbers of batches with which halfWidth computes an interval. student is the 97.5 % quantile of
// Student's t distribution with n-1 degrees of freedom. If there are few batches, each batch is long, so consecutive
// batches are less correlated. If there are many batches, the estimate of the variance is better. halfWidth therefore
// computes one interval for each n and takes the widest. This rule has no source.
var batchings = []struct {
	n       int
	student float64
}{{5, 2.776}, {10, 2.262}, {20, 2.093}}

// halfWidth returns half the width of the 95 % confidence interval of the mean, by the method of batch means. It
// multiplies the variance by (1+r)/(1-r), where r is the correlation of consecutive batches, corrected for its bias and
// limited to 0 to 0.8 (Tafazzoli and Wilson, Skart, IIE Transactions 43, 2011). rough is true if the effective sample
// size, which correlation reduces, is below minEffective. If there are too few values for the largest number of
// batches, half is infinite and rough is true.
func halfWidth(values []float64, mean, minEffective float64) (half float64, rough bool) {
	if len(values) < 2*batchings[len(batchings)-1].n {
		return math.Inf(1), true
	}
	single := 0.0 // variance of the mean of independent values
	for _, v := range values {
		single += (v - mean) * (v - mean)
	}
	n := float64(len(values))
	single /= n * n
	largest := single
	for _, b := range batchings {
		variance := batchVariance(values, mean, b.n)
		half, largest = max(half, b.student*math.Sqrt(variance)), max(largest, variance)
	}
	return half, n*single < minEffective*largest
}

// batchVariance estimates the variance of the mean of values from the means of n batches. centre is the mean
// of all values.
func batchVariance(values []float64, centre float64, n int) float64 {
	square, product, last := 0.0, 0.0, 0.0
	for b := range n {
		part := values[b*len(values)/n : (b+1)*len(values)/n]
		d := mean(part) - centre
		square += d * d
		product += d * last
		last = d
	}
	if square == 0 {
		return 0
	}
	r := min(0.8, max(0, product/square+1/float64(n))) // product/square is about -1/n for independent batches
	return square / float64(n-1) / float64(n) * (1 + r) / (1 - r)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// trend fits a line to values. It returns the slope per value, and the slope divided by its standard error.
func trend(values []float64) (slope, deviations float64) {
	n := float64(len(values))
	if n < 4 {
		return 0, 0
	}
	middle, mean := (n-1)/2, mean(values)
	var xx, xy float64
	for i, v := range values {
		x := float64(i) - middle
		xx += x * x
		xy += x * (v - mean)
	}
	slope = xy / xx
	rest := 0.0
	for i, v := range values {
		e := v - mean - slope*(float64(i)-middle)
		rest += e * e
	}
	if rest == 0 {
		return slope, math.Copysign(math.Inf(1), slope)
	}
	return slope, slope / math.Sqrt(rest/(n-2)/xx)
}

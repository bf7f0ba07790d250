package capacity

import (
	"math"
	"slices"
)

// An Interval is the 95 % confidence interval of a value, in seconds.
type Interval struct {
	Low  Seconds `json:"low"`
	High Seconds `json:"high"`
}

// An estimated value is a mean or a quantile with its 95 % confidence interval, in s.
type estimated struct {
	Mean, Low, High float64
	count           int
}

// batches are what a run is divided into: neighbours in time see the same queue,
// so single values are not independent, means of long batches nearly are.
const batches = 20

// student is the 97.5 % quantile of Student's t with batches-1 degrees of freedom.
const student = 2.093

// leastRequests is how many values it takes for an interval of each objective: for
// a quantile q, as many as exceed it at least once with 97.5 %, 1 - qⁿ.
func (s SLO) leastRequests() int {
	n := 100
	for _, o := range s {
		n = max(n, leastOf(o.Level))
	}
	return n
}

func leastOf(level float64) int {
	if level <= 0 || level >= 1 {
		return 1
	}
	return int(math.Ceil(math.Log(0.025) / math.Log(level)))
}

// value is an objective's over the requests [from, to). More than 1 % refused have
// waited for ever; fewer, which are too long for the system, do not count.
func (w *steadyRun) value(o Objective, from, to int) estimated {
	var values []float64
	lost := 0
	for i := from; i < to; i++ {
		if w.refused[i] {
			lost++
		} else if v, counts := w.latency(o.Metric, i); counts {
			values = append(values, v)
		}
	}
	if lost > 0 && lost > (to-from)/100 {
		return estimated{math.Inf(1), math.Inf(1), math.Inf(1), to - from}
	}
	e := estimateOf(values, o.Level)
	e.Low = max(0, e.Low) // no latency is less
	return e
}

// latency is that of a request that was not refused, in s; +Inf: it has not left yet. An
// answer of one token has none from token to token.
func (w *steadyRun) latency(m Metric, i int) (seconds float64, counts bool) {
	r := &w.requests[i]
	arrival := r.Arrival / w.rate
	switch m {
	case Normalized:
		return (w.done[i] - arrival) / float64(r.Output), true
	case TTFT:
		return w.first[i] - arrival, true
	case TPOT:
		return (w.done[i] - w.first[i]) / float64(r.Output-1), r.Output > 1
	}
	return w.done[i] - arrival, true
}

// estimateOf is the mean (level 0) or the quantile of values in the order of time.
func estimateOf(values []float64, level float64) estimated {
	n := len(values)
	if n == 0 {
		return estimated{}
	}
	if level == 0 {
		mean, half := batchMeans(values)
		return estimated{mean, mean - half, mean + half, n}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := sorted[rank(level, n)-1]
	if level == 1 {
		return estimated{at, at, at, n}
	}
	if n/batches >= leastOf(level) {
		low, high := batchQuantiles(values, level)
		return estimated{at, min(at, low), max(at, high), n}
	}
	// How many values exceed the quantile in a batch says how far the rank of the
	// true one may be away.
	above := make([]float64, n)
	for i, v := range values {
		if v > at {
			above[i] = 1
		}
	}
	_, half := batchMeans(above)
	half = max(half, 1.96*math.Sqrt(level*(1-level)/float64(n)))
	low := sorted[rank(max(level-half, 0), n)-1]
	high := math.Inf(1)
	if level+half < 1 {
		high = sorted[min(n, rank(level+half, n))-1]
	}
	return estimated{at, low, high, n}
}

// batchQuantiles is the confidence interval of a quantile from those of batches.
func batchQuantiles(values []float64, level float64) (low, high float64) {
	var each [batches]float64
	mean, square := 0.0, 0.0
	for b := range each {
		part := slices.Sorted(slices.Values(values[b*len(values)/batches : (b+1)*len(values)/batches]))
		each[b] = part[rank(level, len(part))-1]
		mean += each[b] / batches
	}
	for _, q := range each {
		square += (q - mean) * (q - mean)
	}
	half := student * math.Sqrt(square/(batches-1)/batches)
	return mean - half, mean + half
}

// batchMeans is the mean of values and half of its confidence interval.
func batchMeans(values []float64) (mean, half float64) {
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	if len(values) < 2*batches {
		return mean, math.Inf(1)
	}
	square := 0.0
	for b := range batches {
		part := values[b*len(values)/batches : (b+1)*len(values)/batches]
		m := 0.0
		for _, v := range part {
			m += v
		}
		d := m/float64(len(part)) - mean
		square += d * d
	}
	return mean, student * math.Sqrt(square/(batches-1)/batches)
}

// trend is the slope of a line through values, for each of them, and how many
// standard deviations of its error it is away from none.
func trend(values []float64) (slope, deviations float64) {
	n := float64(len(values))
	if n < 4 {
		return 0, 0
	}
	middle, mean := (n-1)/2, 0.0
	for _, v := range values {
		mean += v / n
	}
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

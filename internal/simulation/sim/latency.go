package sim

import "math"

// Spread has statistics of durations, in seconds.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Latencies collects statistics of answered requests.
type Latencies struct {
	goodput                                         Goodput
	answered, good                                  int
	normalized, endToEnd, firstToken, betweenTokens durations
}

// NewLatencies returns empty statistics. Latencies counts the answers that meet the limits of g.
func NewLatencies(g Goodput) *Latencies { return &Latencies{goodput: g} }

// Add adds an answered request.
func (l *Latencies) Add(d Departure) {
	seconds, tpot := d.Done-d.Arrival, 0.0
	l.answered++
	l.normalized.add(seconds / float64(d.Output))
	l.endToEnd.add(seconds)
	l.firstToken.add(d.First - d.Arrival)
	if d.Output > 1 {
		tpot = (d.Done - d.First) / float64(d.Output-1)
		l.betweenTokens.add(tpot)
	}
	if l.goodput.keeps(d.First-d.Arrival, tpot, seconds) {
		l.good++
	}
}

// Fill sets the number of answers, the latencies and the goodput of a result. The caller must have set r.Seconds.
func (l *Latencies) Fill(r *Result) {
	r.Answered = l.answered
	r.Normalized, r.EndToEnd = l.normalized.spread(), l.endToEnd.spread()
	r.TTFT, r.TPOT = l.firstToken.spread(), l.betweenTokens.spread()
	if l.goodput != (Goodput{}) && r.Seconds > 0 {
		r.Good, r.Goodput = l.good, float64(l.good)/r.Seconds
	}
}

// A durations is a histogram of durations. Each bucket ends 2 % above its start; the first starts at a microsecond.
type durations struct {
	n        int
	sum, max float64
	buckets  [1100]int // up to 3,580 s; the last bucket also has all longer durations
}

const (
	shortest = 1e-6
	bucket   = 0.02 // natural logarithm of the ratio of a bucket's bounds
)

func (d *durations) add(s float64) {
	d.n++
	d.sum += s
	d.max = max(d.max, s)
	i := 0
	if s > shortest {
		i = min(int(math.Log(s/shortest)/bucket), len(d.buckets)-1)
	}
	d.buckets[i]++
}

func (d *durations) spread() Spread {
	if d.n == 0 {
		return Spread{}
	}
	return Spread{Mean: d.sum / float64(d.n), P50: d.quantile(0.5), P90: d.quantile(0.9),
		P95: d.quantile(0.95), P99: d.quantile(0.99), Max: d.max}
}

// quantile returns the quantile p, from 0 to 1. If it is at least a microsecond and before the last bucket, its error
// is about 1 % at most.
func (d *durations) quantile(p float64) float64 {
	rank := int(math.Ceil(p * float64(d.n)))
	seen := 0
	for i, n := range d.buckets {
		if seen += n; seen >= rank {
			if i == len(d.buckets)-1 {
				return d.max
			}
			return min(d.max, shortest*math.Exp((float64(i)+0.5)*bucket))
		}
	}
	return d.max
}

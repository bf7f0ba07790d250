package capacity

import (
	"math"
	"slices"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/workload"
)

// A tally collects what requests see, in seconds, and knows early when an
// objective is lost.
type tally struct {
	requests []workload.Request // all that will come
	rate     float64
	slo      SLO
	first    []float64 // s, by request, of the first token; +Inf: not answered yet
	gone     []bool    // answered, refused or dropped
	several  int       // answers with more than one token, of all requests
	refused  int       // or dropped
	seen     [metrics][]float64
}

const metrics = int(E2E) + 1

func newTally(requests []workload.Request, rate float64, slo SLO) *tally {
	t := &tally{requests: requests, rate: rate, slo: slo, first: make([]float64, len(requests)),
		gone: make([]bool, len(requests))}
	for i := range requests {
		t.first[i] = math.Inf(1)
		if requests[i].Output > 1 {
			t.several++
		}
	}
	return t
}

func (t *tally) left(a sim.Departure) {
	t.gone[a.Index] = true
	if !a.Answered {
		t.refused++
		return
	}
	t.first[a.Index] = a.First
	whole := a.Done - a.Arrival
	t.seen[E2E] = append(t.seen[E2E], whole)
	t.seen[Normalized] = append(t.seen[Normalized], whole/float64(a.Output))
	t.seen[TTFT] = append(t.seen[TTFT], a.First-a.Arrival)
	if a.Output > 1 {
		t.seen[TPOT] = append(t.seen[TPOT], (a.Done-a.First)/float64(a.Output-1))
	}
}

// of returns how many values a metric will have.
func (t *tally) of(m Metric) int {
	if m == TPOT {
		return t.several
	}
	return len(t.requests)
}

// lost reports whether an objective cannot hold any more, whatever comes after now:
// what has arrived and is not answered has waited at least until now. Of a first
// token it is not known here whether it is there, so only answers count.
func (t *tally) lost(now float64, arrived int) bool {
	for _, o := range t.slo {
		values, n := t.seen[o.Metric], t.of(o.Metric)
		sum, above := 0.0, 0
		add := func(v float64) {
			sum += v
			if v > o.Limit {
				above++
			}
		}
		for _, v := range values {
			add(v)
		}
		for i := range arrived {
			if t.gone[i] {
				continue
			}
			switch waited := now - t.arrival(i); o.Metric {
			case E2E:
				add(waited)
			case Normalized:
				add(waited / float64(t.requests[i].Output))
			}
		}
		if o.Level == 0 && sum > o.Limit*float64(n) || o.Level > 0 && above > n-rank(o.Level, n) {
			return true
		}
	}
	return false
}

// rank returns which of n values, from the least up, is the quantile: the nearest rank.
func rank(level float64, n int) int { return max(1, int(math.Ceil(level*float64(n)-1e-9))) }

// value returns the objective's mean or quantile over all requests. One without an
// answer has waited forever; but 1 % of the requests may be refused, because
// they are too long for the system, and do not count then. Without any value there is nothing to
// judge by: that is +Inf, too.
func (t *tally) value(o Objective) float64 {
	values, n := t.seen[o.Metric], t.of(o.Metric)
	if t.refused > 0 && t.refused <= len(t.requests)/100 {
		n = len(values)
	}
	switch {
	case n == 0:
		return math.Inf(1)
	case o.Level == 0:
		if len(values) < n {
			return math.Inf(1)
		}
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum / float64(n)
	}
	at := rank(o.Level, n) - 1
	if at >= len(values) {
		return math.Inf(1)
	}
	values = slices.Clone(values)
	slices.Sort(values)
	return values[at]
}

func (t *tally) arrival(i int) float64 { return t.requests[i].Arrival / t.rate }

// grows says that the server serves less than 95 % of what comes: first tokens of those requests that
// come in the last quarter take longer than those of the second quarter by more than 5 % of the time
// between the two, on average. That matters where runs are short: a limit of seconds can be kept for a
// while at any rate. Runs with a horizon are judged by queueGrows.
func (t *tally) grows() bool {
	mean := func(from, to int) (seconds, at float64) {
		count := 0.0
		for i := from; i < to; i++ {
			if arrival := t.arrival(i); !math.IsInf(t.first[i], 1) {
				count, seconds, at = count+1, seconds+t.first[i]-arrival, at+arrival
			}
		}
		count = max(count, 1)
		return seconds / count, at / count
	}
	quarter := len(t.requests) / 4
	second, secondAt := mean(quarter, 2*quarter)
	last, lastAt := mean(3*quarter, 4*quarter)
	return last-second > 0.05*(lastAt-secondAt)
}

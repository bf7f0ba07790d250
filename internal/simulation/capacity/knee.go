package capacity

import (
	"context"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/workload"
)

const kneePrecision = 0.01

// Knee finds the highest rate that meets the objective for requests that arrive within the scenario's Duration. Unlike
// the runs of Find, its runs have no horizon. Knee also simulates further rates: for each factor in factors, the
// highest rate multiplied by the factor. The PagedAttention paper, too, compares systems by their latencies at several
// rates. Knee refuses a trace.
func (l *Load) Knee(ctx context.Context, p *scenario.Plan, slo SLO, factors []float64, pool Pool) (Capacity, error) {
	if !l.sets[0].steady() {
		return Capacity{}, fmt.Errorf("%w: a trace may end before the time of a run does; name a workload", ErrLoad)
	}
	searches := l.searches(p, slo, Options{Precision: kneePrecision, Pool: pool})
	err := forEach(len(searches), func(i int) error {
		return searches[i].settle(ctx, searches[i].estimate, 1.5)
	})
	if err != nil {
		return Capacity{}, err
	}
	var curve []Step
	for _, factor := range factors {
		curve = append(curve, Step{Rate: collect(searches, kneePrecision).Rate * factor})
	}
	err = forEach(len(searches), func(i int) error {
		for _, step := range curve {
			if err := searches[i].try(ctx, step.Rate, whole); err != nil {
				return err
			}
		}
		return searches[i].settle(ctx, searches[i].estimate, 2) // a rate of the curve may have missed the objective
	})
	if err != nil {
		return Capacity{}, err
	}
	for i, step := range curve {
		for _, s := range searches {
			j := slices.IndexFunc(s.points, func(p Point) bool { return p.Rate == step.Rate })
			curve[i].Points = append(curve[i].Points, s.points[j])
		}
	}
	c := collect(searches, kneePrecision)
	c.Curve = curve
	return c, nil
}

// before returns the requests that arrive before end, but at least one request.
func (d *requestSet) before(end float64) ([]workload.Request, error) {
	requests, err := d.first(1)
	for err == nil && requests[len(requests)-1].Arrival < end {
		requests, err = d.first(max(len(requests)+firstDrawn, int(end))) // one a second arrives
	}
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(requests, func(r workload.Request) bool { return r.Arrival >= end })
	return requests[:max(1, n)], nil
}

// missed reports whether a mean normalized latency will certainly be above its limit, even if all requests
// without an answer were answered now.
func (w *run) missed(now float64) bool {
	for _, o := range w.slo {
		if o.Metric != Normalized || o.Level != 0 {
			continue
		}
		sum := 0.0
		for i := range w.next {
			if r := &w.requests[i]; !w.refused[i] {
				sum += (min(w.done[i], now) - r.Arrival/w.rate) / float64(r.Output)
			}
		}
		if sum > o.Limit*float64(len(w.requests)) {
			return true
		}
	}
	return false
}

// judgeFixed writes the verdict on a run without a horizon.
func (w *run) judgeFixed(p *Point) {
	p.Grows = w.growsInQuarters()
	p.Holds = !p.Grows
	for _, o := range w.slo {
		v := w.value(o, 0, w.next)
		p.Values = append(p.Values, Seconds(v.Mean))
		p.Holds = p.Holds && v.Mean <= o.Limit
	}
}

// growsInQuarters reports whether the server answers less than 95 % of the arriving requests. If it answers 95 %, a
// request that arrives 100 s later waits about 5 s longer for its first token. growsInQuarters therefore compares the
// mean time to the first token of two parts of the requests: the second quarter and the last quarter. The server is too
// slow if the times differ by more than 5 % of the time between the arrivals of the two parts.
//
// It is not enough to compare the latencies of a short run with their limits. Even at a rate that is far too high, it
// takes a while until the latencies exceed a limit of seconds.
func (w *run) growsInQuarters() bool {
	mean := func(start, end int) (ttft, arrival float64) {
		count := 0.0
		for i := start; i < end; i++ {
			if t := w.requests[i].Arrival / w.rate; !math.IsInf(w.first[i], 1) {
				count, ttft, arrival = count+1, ttft+w.first[i]-t, arrival+t
			}
		}
		count = max(count, 1)
		return ttft / count, arrival / count
	}
	quarter := w.next / 4
	second, secondAt := mean(quarter, 2*quarter)
	last, lastAt := mean(3*quarter, 4*quarter)
	return last-second > 0.05*(lastAt-secondAt)
}

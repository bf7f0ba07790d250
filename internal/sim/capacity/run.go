package capacity

import (
	"context"
	"errors"
	"math"
	"strconv"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/scenario"
)

// A Point is a run at one rate.
type Point struct {
	Rate  float64 `json:"rate"` // requests/s
	Holds bool    `json:"holds"`

	// Grows is set where the queue does. The rate does not hold then; but without a
	// horizon that of a trace may, which may end in a burst.
	Grows bool `json:"grows,omitempty"`

	// Cut is set where the run ended as soon as its outcome was clear, Stuck where
	// some request waits forever: then there is no result. Short is set where the
	// requests are too few for the run to tell what lasts.
	Cut    bool   `json:"cut,omitempty"`
	Stuck  bool   `json:"stuck,omitempty"`
	Short  bool   `json:"short,omitempty"`
	Reason string `json:"reason,omitempty"` // why it does not hold, where there was a horizon

	// Of a run with a horizon: the confidence interval of each value, and the
	// seconds of arrivals.
	Intervals []Interval `json:"intervals,omitempty"`
	Span      float64    `json:"span,omitempty"`

	// Values are those of the objectives, in the SLO's order, in seconds: over all
	// requests, or with a horizon over those after the warm-up. Up to 1 % refused do not
	// count. +Inf, written as -1: one that counts had no answer.
	Values []Seconds   `json:"values,omitempty"`
	Result *sim.Result `json:"result,omitempty"` // averages are over the time of arrivals
}

// Seconds can be infinite, which JSON cannot.
type Seconds float64

// MarshalJSON writes -1 for infinity.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(s), 0) {
		return []byte("-1"), nil
	}
	return []byte(number(float64(s))), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if *s = Seconds(v); v == -1 {
		*s = Seconds(math.Inf(1))
	}
	return err
}

// measure runs a set of requests at a rate. Whole runs are not cut.
func measure(ctx context.Context, p *scenario.Plan, d *requestSet, seed uint64, rate float64, slo SLO,
	whole bool) (Point, error) {
	point := Point{Rate: rate}
	requests, err := d.at(rate)
	if err != nil {
		return point, err
	}
	t := newTally(requests, rate, slo)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	config := sim.Config{
		Server: p.Scenario.Server, Decoding: p.Scenario.Decoding, Cost: p.Model, Seed: seed,
		Until: requests[len(requests)-1].Arrival / rate, Left: t.left,
		Progress: func(now float64, arrived, _ int) {
			if !whole && t.lost(now, arrived) {
				point.Cut = true
				cancel()
			}
		},
	}
	result, err := sim.Run(inner, config, &scaled{requests: requests, rate: rate})
	switch {
	case point.Cut && ctx.Err() == nil:
		return point, nil
	case errors.Is(err, sim.ErrStuck):
		point.Stuck = true
		return point, nil
	case err != nil:
		return point, err
	}
	point.Result, point.Holds = result, true
	for _, o := range slo {
		v := t.value(o)
		point.Values = append(point.Values, Seconds(v))
		point.Holds = point.Holds && v <= o.Limit
	}
	point.Grows = t.grows()
	if point.Grows && d.steady {
		point.Holds = false
	}
	return point, nil
}

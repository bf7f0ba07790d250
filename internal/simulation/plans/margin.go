package plans

import (
	"fmt"

	"llmmemory/internal/simulation/cost"
)

// A Range bounds the capacity. Its ends are the capacities with the slowest and with the fastest times that are within
// the cost.Margin of the setup. It always contains the report's capacity. Rates are in requests/s.
type Range struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"` // 0 if not known, because a trace is too short
	Rests string  `json:"restsOn"`

	margin *cost.Margin
}

// bounds returns two trials: one with the slowest times within the cost model's margin, and one with the
// fastest. It returns none if the model has no margin.
func (s *sizer) bounds() []trial {
	m := s.plan.Setup.Margin()
	if m == nil {
		return nil
	}
	bound := func(name string, factor, firstToken float64) trial {
		t := s.trial(name, Whole)
		t.iterationFactor, t.firstToken = factor, firstToken/1000
		return t
	}
	return []trial{bound("slowest", m.Most, m.First.Most), bound("fastest", m.Least, m.First.Least)}
}

// rangeOf returns the range of the capacity. bounds[0] is the result of the trial with the slowest times, and bounds[1]
// is the result of the trial with the fastest times. rangeOf extends the range to s.confirmed if this capacity is
// outside. It returns nil if bounds is empty.
func (s *sizer) rangeOf(bounds []Change) *Range {
	if len(bounds) == 0 {
		return nil
	}
	m := s.plan.Setup.Margin()
	r := &Range{Low: min(s.confirmed.Rate, bounds[0].Rate), Rests: m.String(), margin: m}
	if bounds[1].Trouble == "" {
		r.High = max(s.confirmed.Rate, bounds[1].Rate)
	}
	return r
}

// latency describes the range in which a latency lies, from the latency with the shortest times within the margin to
// the latency with the longest ones. v is the latency, in s, with the simulated times, at the same rate of requests.
// isFirstToken says that v is a time to the first token, which includes time outside iterations.
func (r *Range) latency(v float64, isFirstToken bool) string {
	low, high := v*r.margin.Least, v*r.margin.Most
	if isFirstToken {
		f := r.margin.First
		engine := v - f.Likely/1000
		low, high = engine*r.margin.Least+f.Least/1000, engine*r.margin.Most+f.Most/1000
	}
	return fmt.Sprintf("%s to %s", seconds(low), seconds(high))
}

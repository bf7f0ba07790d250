package plans

import (
	"fmt"

	"llmmemory/internal/simulation/cost"
)

// A Range has the bounds of the capacity if the errors of the times are within a cost.Margin. Rates are in
// requests/s.
type Range struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"` // 0 if not known, because a trace is too short
	Rests string  `json:"restsOn"`

	margin *cost.Margin
}

// bounds returns two trials: with the slowest and with the fastest iterations within the margin. It returns none if
// no margin is known.
func (s *sizer) bounds() []trial {
	m := s.plan.Setup.Margin()
	if m == nil {
		return nil
	}
	bound := func(name string, iterations, first float64) trial {
		t := s.trial(name, Whole)
		t.iterations, t.first = iterations, first/1000
		return t
	}
	return []trial{bound("slowest", m.Most, m.First.Most), bound("fastest", m.Least, m.First.Least)}
}

// rangeOf returns the range between the results of the two trials of bounds. It returns nil if there are no
// results.
func (s *sizer) rangeOf(bounds []Change) *Range {
	if len(bounds) == 0 {
		return nil
	}
	m := s.plan.Setup.Margin()
	r := &Range{Low: min(s.base.Rate, bounds[0].Rate), Rests: m.String(), margin: m}
	if bounds[1].Trouble == "" {
		r.High = max(s.base.Rate, bounds[1].Rate)
	}
	return r
}

// latency returns the range, in s, of a latency v at the same rate. first says that the latency is a time to the
// first token.
func (r *Range) latency(v float64, first bool) string {
	low, high := v*r.margin.Least, v*r.margin.Most
	if first {
		f := r.margin.First
		engine := v - f.Likely/1000
		low, high = engine*r.margin.Least+f.Least/1000, engine*r.margin.Most+f.Most/1000
	}
	return fmt.Sprintf("%s to %s", seconds(low), seconds(high))
}

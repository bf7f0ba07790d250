package scenario

import (
	"cmp"
	"fmt"
	"math"

	"llmmemory/internal/simulation/workload"
)

// Source opens the requests of the plan. The caller must call done when it needs no more requests.
func (p *Plan) Source() (source workload.Source, done func(), err error) {
	if p.lengths != nil {
		source, err = p.drawn()
		return source, func() {}, err
	}
	t, err := workload.Open(p.Scenario.Trace)
	if err != nil {
		return nil, nil, err
	}
	if source, err = p.traced(t); err != nil {
		t.Close()
		return nil, nil, err
	}
	return source, func() { t.Close() }, nil
}

func (p *Plan) drawn() (source workload.Source, err error) {
	s := &p.Scenario
	turns := max(1, s.Turns)
	// Gamma generates only the first turns of conversations, so the number and the rate of requests are divided by
	// the mean number of turns.
	requests := int(math.Ceil(float64(s.Requests) / turns))
	rate, shape := s.Rate/turns, cmp.Or(s.Burstiness, 1)
	if s.AtOnce {
		rate = 1
	}
	if source, err = workload.Gamma(p.lengths, rate, shape, s.Seed, s.Duration, requests); err != nil {
		return nil, err
	}
	if s.AtOnce {
		source = workload.AtOnce(source)
	}
	if s.Turns == 0 {
		return source, nil
	}
	return workload.Conversations(source, p.lengths, workload.Talk{Turns: s.Turns, Think: s.Think}, s.Seed,
		s.Server.MaxModelLen)
}

func (p *Plan) traced(source workload.Source) (_ workload.Source, err error) {
	s := &p.Scenario
	switch {
	case s.AtOnce:
		source = workload.AtOnce(source)
	case p.factor != 1:
		if source, err = workload.AtMultiple(source, p.factor); err != nil {
			return nil, err
		}
	}
	if s.Duration > 0 {
		source = workload.ArrivingBefore(source, s.Duration)
	}
	if s.Requests > 0 {
		source = workload.FirstRequests(source, s.Requests)
	}
	if s.Turns > 0 {
		return workload.SessionsOf(source, s.Think)
	}
	return source, nil
}

// Digits formats v with three significant digits, or as a whole number from 1,000 on.
func Digits(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

package capacity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/sim/scenario"
)

// ErrUnbounded is wrapped when the objective holds at any rate, because there are
// too few requests to fill the server.
var ErrUnbounded = errors.New("no rate is too high")

// A search is for the capacity under one seed.
type search struct {
	plan      *scenario.Plan
	set       *requestSet
	seed      uint64
	slo       SLO
	precision float64
	horizon   *Horizon // nil: the requests of the set, no more and no fewer
	pool      Pool
	estimate  float64
	points    []Point // by rate
}

// try runs one rate, unless it was run already.
func (s *search) try(ctx context.Context, rate float64, whole bool) error {
	i, found := slices.BinarySearchFunc(s.points, rate, func(p Point, rate float64) int {
		switch {
		case p.Rate < rate:
			return -1
		case p.Rate > rate:
			return 1
		}
		return 0
	})
	if found && (!whole || !s.points[i].Cut || s.horizon != nil && !s.points[i].Holds) {
		return nil
	}
	if err := s.pool.Take(ctx); err != nil {
		return err
	}
	var p Point
	var err error
	switch {
	case s.horizon != nil && rate == s.alone(): // what it takes is reported
		p, err = observe(ctx, s.plan, s.set, s.seed, rate, s.slo, *s.horizon)
	case s.horizon != nil:
		p, err = measureSteady(ctx, s.plan, s.set, s.seed, rate, s.slo, *s.horizon, whole)
	default:
		p, err = measure(ctx, s.plan, s.set, s.seed, rate, s.slo, whole)
	}
	s.pool.Give()
	if err != nil {
		return fmt.Errorf("%.4g requests/s, seed %d: %w", rate, s.seed, err)
	}
	if found {
		s.points[i] = p
	} else {
		s.points = slices.Insert(s.points, i, p)
	}
	return nil
}

// bracket returns the lowest rate that failed, +Inf if none did, and the highest
// below it, 0 if there is none.
func (s *search) bracket() (low, high float64) {
	for _, p := range s.points {
		if !p.Holds {
			return low, p.Rate
		}
		low = p.Rate
	}
	return low, math.Inf(1)
}

// monotone reports whether nothing held above the lowest rate that failed.
func (s *search) monotone() bool {
	_, high := s.bracket()
	return !slices.ContainsFunc(s.points, func(p Point) bool { return p.Holds && p.Rate > high })
}

// alone returns a rate at which requests are alone, but for those that a trace has at once.
func (s *search) alone() float64 { return s.estimate * 1e-6 }

// cut reports whether the run at a rate ended before its horizon.
func (s *search) cut(rate float64) bool {
	return slices.ContainsFunc(s.points, func(p Point) bool { return p.Rate == rate && p.Cut })
}

// short returns an error if the rate above the capacity failed only because the
// requests are too few: then more might hold.
func (s *search) short(high float64) error {
	i := slices.IndexFunc(s.points, func(p Point) bool { return p.Rate == high && p.Short })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; take a longer trace, or --workload", ErrShort, s.points[i].Reason)
}

// settle narrows the bracket to the precision. If nothing was tried it begins at
// a rate and goes on from it by a step that is squared each time, up to doubling.
// A capacity of 0 is when even requests that are alone miss the objective.
func (s *search) settle(ctx context.Context, start, step float64) error {
	alone, most := s.alone(), s.estimate*1e5
	for range 200 {
		low, high := s.bracket()
		next := 0.0
		switch {
		case low > 0 && high <= low*(1+s.precision) && s.cut(low):
			if err := s.try(ctx, low, true); err != nil { // it seemed to hold: does it until the horizon?
				return err
			}
			continue
		case low > 0 && high <= low*(1+s.precision) || high <= alone:
			return s.short(high)
		case low == 0 && math.IsInf(high, 1):
			next = start
		case math.IsInf(high, 1):
			if low > most {
				return fmt.Errorf("%w: %v holds at %.4g requests/s; take more requests or a stricter objective", ErrUnbounded,
					s.slo, low)
			}
			next, step = low*step, min(2, step*step)
		case low == 0 && high > s.estimate/50:
			next, step = high/step, min(2, step*step)
		case low == 0:
			next = alone
		default:
			next = math.Sqrt(low * high)
		}
		if err := s.try(ctx, next, next == alone); err != nil {
			return err
		}
	}
	return fmt.Errorf("capacity: no end of the search under seed %d", s.seed) // a bug
}

package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/simulation/scenario"
)

// ErrUnbounded is wrapped when all rates meet the objective, because there are too few requests to fill the server.
var ErrUnbounded = errors.New("no rate is too high")

// A search finds the capacity under one seed.
type search struct {
	runner
	precision float64
	estimate  float64
	points    []Point // by rate
}

func (l *Load) searches(p *scenario.Plan, slo SLO, o Options) []*search {
	estimate := l.estimate(p)
	var all []*search
	for _, r := range l.runners(p, slo, o.Horizon, o.Pool, l.sets) {
		all = append(all, &search{runner: r, precision: o.Precision, estimate: estimate})
	}
	return all
}

// try simulates a rate and stores the result in s.points. If s.points already has a result for the rate, try keeps this
// result in these cases, and simulates nothing:
//
//   - e is brief: any result is enough.
//   - The earlier run was not cut before its end.
//   - The earlier run missed the objective, and runs have a horizon. A new whole run would be cut, too, because with a
//     horizon a whole run ends when the rate fails.
func (s *search) try(ctx context.Context, rate float64, e effort) error {
	i, found := slices.BinarySearchFunc(s.points, rate, func(p Point, rate float64) int { return cmp.Compare(p.Rate, rate) })
	if found && (e == brief || !s.points[i].Cut || !s.points[i].Holds && !s.fixed()) {
		return nil
	}
	p, err := s.runAt(ctx, rate, e)
	if err != nil {
		return fmt.Errorf("%.4g requests/s, seed %d: %w", rate, s.set.seed, err)
	}
	if found {
		s.points[i] = p
	} else {
		s.points = slices.Insert(s.points, i, p)
	}
	return nil
}

// bracket returns two neighbouring rates among those that were run. high is the lowest rate that missed the
// objective, or +Inf if none did. low is the next lower rate, or 0 if there is none.
func (s *search) bracket() (low, high float64) {
	for _, p := range s.points {
		if !p.Holds {
			return low, p.Rate
		}
		low = p.Rate
	}
	return low, math.Inf(1)
}

// monotone reports whether each rate that met the objective is lower than all rates that missed it.
func (s *search) monotone() bool {
	_, high := s.bracket()
	return !slices.ContainsFunc(s.points, func(p Point) bool { return p.Holds && p.Rate > high })
}

// lowestRate returns a rate that is so low that requests hardly ever overlap. Requests of a trace with the same arrival
// time overlap even at this rate.
func (s *search) lowestRate() float64 { return s.estimate * 1e-6 }

// cut reports whether the run at a rate was ended before its horizon because its outcome was clear.
func (s *search) cut(rate float64) bool {
	return slices.ContainsFunc(s.points, func(p Point) bool { return p.Rate == rate && p.Cut })
}

// shortError returns an error that wraps ErrShort if the run at the rate high, just above the capacity, failed only
// because it has too few requests.
func (s *search) shortError(high float64) error {
	i := slices.IndexFunc(s.points, func(p Point) bool { return p.Rate == high && p.Short })
	if i < 0 {
		return nil
	}
	return s.points[i].tooShort()
}

// settle narrows the bracket until it is as small as the precision. The first rate is start. As long as all rates meet
// the objective, the next rate is the highest rate multiplied by step. As long as all rates miss the objective, the
// next rate is the lowest rate divided by step. After each multiplication or division, settle squares step, but step
// stays at most 2. When one rate has met the objective and another has missed it, settle bisects. At the end, it
// repeats the run at the lower rate of the bracket if this run was cut.
//
// When no rate has met the objective, and a rate at or below a fiftieth of the estimate has missed it, settle next
// tries lowestRate. If even lowestRate misses the objective, the capacity is 0.
func (s *search) settle(ctx context.Context, start, step float64) error {
	lowest, limit := s.lowestRate(), s.estimate*1e5
	for range 200 {
		low, high := s.bracket()
		next := 0.0
		switch {
		case low > 0 && high <= low*(1+s.precision) && s.cut(low):
			if err := s.try(ctx, low, whole); err != nil { // the run was cut before its horizon
				return err
			}
			continue
		case low > 0 && high <= low*(1+s.precision) || high <= lowest:
			return s.shortError(high)
		case low == 0 && math.IsInf(high, 1):
			next = start
		case math.IsInf(high, 1):
			if low > limit {
				return fmt.Errorf("%w: %v holds at %.4g requests/s; take more requests or a stricter objective", ErrUnbounded,
					s.slo, low)
			}
			next, step = low*step, min(2, step*step)
		case low == 0 && high > s.estimate/50:
			next, step = high/step, min(2, step*step)
		case low == 0:
			next = lowest
		default:
			next = math.Sqrt(low * high)
		}
		e := brief
		if next == lowest {
			e = patient // the values there are reported
		}
		if err := s.try(ctx, next, e); err != nil {
			return err
		}
	}
	return fmt.Errorf("capacity: no end of the search under seed %d", s.set.seed) // a bug
}

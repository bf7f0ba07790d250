package capacity

import (
	"context"
	"fmt"
	"math"

	"llmmemory/internal/simulation/scenario"
)

// Confirm searches twice. The first search multiplies or divides the rate by confirmStep in each step. The second
// search divides the rate by fineStep in each step. maxUp and maxDown limit the number of steps.
const (
	confirmStep = 1.03
	fineStep    = 1.015
	maxUp       = 20 // steps
	maxDown     = 40
)

// Confirm takes the seeds of the search and at least minOthers other seeds. At a low rate, few requests arrive in an
// hour. The results then differ more between seeds, and their median needs more seeds. Confirm therefore takes so many
// other seeds that the requests of one hour, summed over all seeds, are about confirmRequests. Beyond minOthers, it
// adds other seeds only up to maxOthers + 1 seeds in all. For a trace, it takes no other seeds.
const (
	confirmRequests = 30_000
	minOthers       = 4
	maxOthers       = 16
)

// Confirm replaces c.Rate, a result of Find, by a rate that meets the objective for the whole horizon h (default
// DefaultHorizon). Confirm lengthens the horizon if its time is shorter than the scenario's Duration, or if it has
// fewer requests than the scenario's Requests.
//
// Confirm takes the seeds that Find used, and further seeds. It first finds the highest rate of a grid that meets the
// objective under more than half of all seeds, and sets c.Most to it. It then begins one step of the grid below c.Most
// and lowers the rate until the objective is met under every seed that Find used, and missed under few of the further
// seeds: at most a sixteenth of the number of all seeds. So the more the results differ between seeds, for example
// because of bursts, the lower the final rate. A trace has only one seed, and Confirm begins at c.Most. If it would
// take too many steps, Confirm returns an error that wraps ErrShort.
func (l *Load) Confirm(ctx context.Context, p *scenario.Plan, slo SLO, h Horizon, pool Pool, c *Capacity) error {
	if h == (Horizon{}) {
		h = DefaultHorizon
	}
	h.Seconds = max(h.Seconds, p.Scenario.Duration)
	h.Requests = max(h.Requests, p.Scenario.Requests)
	hours := math.Ceil(confirmRequests / (3600 * c.Rate))
	others, err := l.confirming(max(minOthers, int(min(hours, maxOthers+1))-len(l.sets)))
	if err != nil {
		return err
	}
	runners := append(l.runners(p, slo, h, pool, others), l.runners(p, slo, h, pool, l.sets)...)
	k := newConfirmation(len(runners), len(l.sets), func(i int, rate float64, e effort) (Point, error) {
		return runners[i].runAt(ctx, rate, e)
	})
	k.seconds = h.Seconds
	rate, err := k.threshold(c.Rate)
	if err != nil {
		return err
	}
	c.Most = rate
	if len(k.held) > 1 { // not a trace
		rate /= confirmStep
	}
	if c.Rate, c.Confirmed, err = k.lasting(rate); err != nil {
		return err
	}
	c.Held, _, _ = k.known(c.Rate)
	c.Tried = len(k.held)
	return nil
}

// A confirmation has the results of runs up to the horizon under several seeds. It assumes that latencies grow with the
// rate. So it need not simulate a rate under a seed that met the objective at a higher rate: the seed counts as meeting
// it. A seed that missed the objective at a lower rate counts as missing it. The method searchRuns checks this
// assumption, but only at rates that nearlyAll accepts, and for the seeds of the search.
type confirmation struct {
	runAt       func(i int, rate float64, e effort) (Point, error) // simulates a rate under the i-th seed
	searchSeeds int                                                // number of seeds of the search, the last ones
	seconds     float64                                            // of a run
	held        []Point                                            // for each seed, the highest rate that held
	failed      []Point                                            // for each seed, the lowest rate that failed
}

func newConfirmation(seeds, searchSeeds int, runAt func(int, float64, effort) (Point, error)) *confirmation {
	return &confirmation{runAt: runAt, searchSeeds: searchSeeds, held: make([]Point, seeds), failed: make([]Point, seeds)}
}

// lasting lowers the rate in steps, from begin, until nearlyAll accepts the rate. It returns this rate and the runs
// at this rate, one for each seed of the search.
func (k *confirmation) lasting(begin float64) (rate float64, runs []Point, err error) {
	rate = begin
	for range maxDown {
		lasts, err := k.nearlyAll(rate)
		if err != nil {
			return 0, nil, err
		}
		if lasts {
			if runs, lasts, err = k.searchRuns(rate); err != nil || lasts {
				return rate, runs, err
			}
		}
		rate /= fineStep
	}
	return 0, nil, k.shortError(begin)
}

// searchRuns returns the runs at a rate, one for each seed of the search, and whether all of these runs meet the
// objective. If a seed met the objective at a higher rate and misses it at this rate, searchRuns discards its result at
// the higher rate.
func (k *confirmation) searchRuns(rate float64) (runs []Point, hold bool, err error) {
	first := len(k.held) - k.searchSeeds
	runs = make([]Point, k.searchSeeds)
	err = forEach(k.searchSeeds, func(n int) (err error) {
		i := first + n
		if k.held[i].Holds && k.held[i].Rate == rate {
			runs[n] = k.held[i]
			return nil
		}
		runs[n], err = k.runAt(i, rate, patient)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	hold = true
	for n, p := range runs {
		if !p.Holds {
			k.held[first+n], k.failed[first+n], hold = Point{}, p, false
		}
	}
	return runs, hold, nil
}

// threshold returns a rate of the grid that meets the objective under most seeds, while the next rate of the grid does
// not. The parameter rate is a rate that meets the objective in short runs. With several seeds, the search starts one
// step below it, because long runs rarely meet the objective at a higher rate; with one seed, it starts there. After
// maxUp steps upwards it ends, even if a higher rate would meet the objective.
func (k *confirmation) threshold(rate float64) (float64, error) {
	begin := rate
	if len(k.held) > 1 {
		rate /= confirmStep
	}
	lasts, err := k.majority(rate)
	if err != nil {
		return 0, err
	}
	for steps := 0; lasts && steps < maxUp; steps++ {
		higher, err := k.majority(rate * confirmStep)
		if err != nil || !higher {
			return rate, err
		}
		rate *= confirmStep
	}
	for steps := 0; !lasts; steps++ {
		if steps == maxDown {
			return 0, k.shortError(begin)
		}
		rate /= confirmStep
		if lasts, err = k.majority(rate); err != nil {
			return 0, err
		}
	}
	return rate, nil
}

func (k *confirmation) shortError(rate float64) error {
	return fmt.Errorf("%w: %.4g requests/s hold for a short time, and no such rate for %.0f s", ErrShort, rate,
		k.seconds)
}

// majority reports whether more than half of the seeds meet the objective at a rate. It simulates no further seed when
// the result is certain.
func (k *confirmation) majority(rate float64) (bool, error) {
	n := len(k.held)
	for {
		held, failed, unknown := k.known(rate)
		if 2*held > n {
			return true, nil
		}
		if 2*(n-failed) <= n {
			return false, nil
		}
		next := min(n/2+1-held, n-n/2-failed)
		if err := k.run(rate, unknown[:next]); err != nil {
			return false, err
		}
	}
}

// nearlyAll reports whether a rate meets the objective under nearly all seeds. Under every seed of the search, it must
// meet the objective, because the runs under these seeds become Capacity.Confirmed. Under other seeds, it may miss the
// objective, but the number of these misses must be at most a sixteenth of the number of all seeds.
func (k *confirmation) nearlyAll(rate float64) (bool, error) {
	lasts := func() bool {
		_, failed, _ := k.known(rate)
		for _, p := range k.failed[len(k.held)-k.searchSeeds:] {
			if p.Rate > 0 && rate >= p.Rate {
				return false
			}
		}
		return failed <= len(k.held)/16
	}
	_, _, unknown := k.known(rate)
	if !lasts() {
		return false, nil
	}
	if err := k.run(rate, unknown); err != nil {
		return false, err
	}
	return lasts(), nil
}

// known returns how many seeds meet the objective at a rate and how many miss it, as far as the results so far tell.
// unknown has the indexes of the other seeds.
func (k *confirmation) known(rate float64) (held, failed int, unknown []int) {
	for i := range k.held {
		switch {
		case k.held[i].Holds && rate <= k.held[i].Rate:
			held++
		case k.failed[i].Rate > 0 && rate >= k.failed[i].Rate:
			failed++
		default:
			unknown = append(unknown, i)
		}
	}
	return held, failed, unknown
}

func (k *confirmation) run(rate float64, indexes []int) error {
	return forEach(len(indexes), func(n int) error {
		i := indexes[n]
		point, err := k.runAt(i, rate, whole)
		switch {
		case err != nil:
			return err
		case point.Short:
			return point.tooShort()
		case point.Holds:
			k.held[i] = point
		default:
			k.failed[i] = point
		}
		return nil
	})
}

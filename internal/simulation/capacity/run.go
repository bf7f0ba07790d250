package capacity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

// A Point is the outcome of a run at one rate.
type Point struct {
	Rate  float64 `json:"rate"` // requests/s
	Holds bool    `json:"holds"`
	Grows bool    `json:"grows,omitempty"` // the queue grows, so the rate does not hold

	// Cut means that the run ended early because its outcome was clear. Stuck means that some request would wait
	// forever. A point with Cut or Stuck has no Result. Short means that there are too few requests to show whether
	// the objective is met at this rate for long.
	Cut    bool   `json:"cut,omitempty"`
	Stuck  bool   `json:"stuck,omitempty"`
	Short  bool   `json:"short,omitempty"`
	Reason string `json:"reason,omitempty"` // why it does not hold

	Intervals []Interval `json:"intervals,omitempty"` // confidence interval of each value
	Span      float64    `json:"span,omitempty"`      // s of arrivals

	// Values has one measured latency for each objective of the SLO: the mean or the quantile that the objective
	// limits. It is over the requests after the warm-up, or over all requests in a run of Knee. Refused requests are
	// ignored if they are at most 1 % of these requests. If more are refused, the value is +Inf, written as -1 in JSON.
	Values []Seconds   `json:"values,omitempty"`
	Result *sim.Result `json:"result,omitempty"`
}

// Seconds is a time that may be infinite. JSON has no infinity, so Seconds defines its own encoding.
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

// A Horizon says how long requests must arrive in a run, so that the latencies are those of a server in steady state.
// Each of its fields is a minimum. Arrivals end when all of them are reached, or at the limits maxSeconds and
// maxRequests. A trace is not cut.
type Horizon struct {
	Seconds  float64 // of arrivals
	Answers  float64 // of arrivals, as a multiple of the mean time of an answer
	Requests int     // after the warm-up
}

// DefaultHorizon is for Confirm. SearchHorizon is for Find if Confirm follows. CompareHorizon is for capacities that
// are only compared with each other. Only long runs show that a rate is slightly too high. At 1 % above the sustained
// rate, requests wait for 36 s after an hour, but only 6 s after ten minutes.
var (
	DefaultHorizon = Horizon{Seconds: 3600, Answers: 40}
	SearchHorizon  = Horizon{Seconds: 600, Answers: 20}
	CompareHorizon = Horizon{Seconds: 240, Answers: 16}
)

// An effort says when a run ends.
type effort int

const (
	brief   effort = iota // when the outcome is clear
	whole                 // at the horizon, or earlier if the rate fails
	patient               // at the horizon, or earlier if the queue grows without end
)

const (
	maxSeconds  = 20 * 3600 // of arrivals, unless the minimum number of requests needs more time
	maxRequests = 5 << 20   // of a run
	margin      = 1.25      // allows for mean answers that become longer during the run
)

// A runner runs the requests of one seed at any rate.
type runner struct {
	plan    *scenario.Plan
	set     *requestSet
	slo     SLO
	horizon Horizon // if zero, requests arrive for the scenario's Duration, see Knee
	pool    Pool
	runs    *runs.Store // nil if results are not kept
}

func (r *runner) fixed() bool { return r.horizon == Horizon{} }

func (l *Load) runners(p *scenario.Plan, slo SLO, h Horizon, pool Pool, sets []*requestSet) []runner {
	all := make([]runner, len(sets))
	for i, set := range sets {
		all[i] = runner{plan: p, set: set, slo: slo, horizon: h, pool: pool, runs: l.runs}
	}
	return all
}

// runAt returns the result of a simulation in which requests arrive at a rate. It waits until the pool allows another
// simulation. If the result is stored, runAt simulates nothing.
func (r *runner) runAt(ctx context.Context, rate float64, e effort) (Point, error) {
	if err := r.pool.Take(ctx); err != nil {
		return Point{}, err
	}
	defer r.pool.Give()
	key := struct {
		Scenario  scenario.Scenario
		Cost, SLO string
		Horizon   Horizon
		Seed      uint64
		Rate      float64
		Effort    effort
	}{r.plan.Scenario, fmt.Sprintf("%+v", *r.plan.Model), fmt.Sprintf("%+v", []Objective(r.slo)), r.horizon, r.set.seed, rate, e}
	return runs.Do(r.runs, key, func() (Point, error) {
		// With sim.Config.Ample a run is much faster, but it fails if memory gets short.
		point, err := r.newRun(rate, e).simulate(ctx, true)
		if errors.Is(err, sim.ErrAmple) {
			return r.newRun(rate, e).simulate(ctx, false)
		}
		return point, err
	})
}

// A run is the simulation of one rate. It is the source of the requests, and ends the simulation when the
// outcome is clear.
type run struct {
	*runner
	rate   float64
	effort effort

	requests    []workload.Request // drawn so far
	next        int
	multiToken  int     // requests so far with answers of more than one token
	fit         int     // sequences of mean length that can run at once
	lastArrival float64 // s; the end of arrivals, which enoughArrived may raise
	ended       bool    // all requests of a trace have arrived

	first, done []float64 // s, by request; +Inf if not yet
	refused     []bool
	departed    int
	waiting     int     // arrived, without a first token
	answered    int     // number of answers
	answering   float64 // s; total time of the answers
	queue       []sample
	check       float64 // s; time of the next call of judgeEarly that may decide
	grew        int     // see keepsGrowing
	verdict     verdict
	reason      string
}

func (r *runner) newRun(rate float64, e effort) *run {
	w := &run{runner: r, rate: rate, effort: e, fit: r.set.fit(r.plan)}
	w.lastArrival = w.minSeconds()
	if r.fixed() {
		w.lastArrival = r.plan.Scenario.Duration
	}
	w.check = min(120, w.lastArrival/4)
	return w
}

// simulate runs the simulation. With ample, it returns sim.ErrAmple if memory gets short.
func (w *run) simulate(ctx context.Context, ample bool) (Point, error) {
	if w.fixed() {
		var err error
		if w.requests, err = w.set.before(w.lastArrival * w.rate); err != nil {
			return Point{}, err
		}
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	config := sim.Config{
		Server: w.plan.Scenario.Server, Decoding: w.plan.Scenario.Decoding, Cost: w.plan.Model, Seed: w.set.seed,
		Ample: ample, Departed: w.leave, First: w.token,
		Progress: func(now float64, _, _ int) {
			w.queue = append(w.queue, sample{now, w.waiting})
			if w.verdict = w.judgeEarly(now); w.verdict != undecided {
				cancel()
			}
		},
	}
	result, err := sim.Run(inner, config, w)
	point := Point{Rate: w.rate}
	switch {
	case w.verdict != undecided: // err is errDecided or a cancellation, perhaps of ctx as well
		point.Holds, point.Cut, point.Reason = w.verdict == holds, true, w.reason
		return point, nil
	case errors.Is(err, sim.ErrStuck):
		point.Stuck, point.Reason = true, "requests wait forever"
		return point, nil
	case err != nil:
		return point, err
	}
	w.judge(&point)
	point.Result = result
	return point, nil
}

// minSeconds returns the minimum time, in seconds, during which requests arrive. enoughArrived may extend this time.
func (w *run) minSeconds() float64 {
	return max(w.horizon.Seconds, float64(w.measured())/(1-warmUp)/w.rate)
}

func (w *run) measured() int { return max(w.horizon.Requests, w.slo.minRequests()) }

// Next implements workload.Source. It ends the arrivals when enoughArrived returns true, and when a trace or the
// requests of a run without a horizon end. If too many requests wait, Next returns errDecided.
func (w *run) Next(r *workload.Request) error {
	if w.next == len(w.requests) && !w.fixed() {
		var err error
		if w.requests, err = w.set.first(max(2*w.next, 1024)); err != nil {
			return err
		}
	}
	if w.ended = w.next == len(w.requests); w.ended {
		return io.EOF
	}
	*r = w.requests[w.next]
	r.Arrival /= w.rate
	if w.set.steady() && !w.fixed() && r.Arrival >= w.lastArrival && w.enoughArrived(r.Arrival) { // a trace is never cut
		return io.EOF
	}
	w.next++
	w.waiting++
	if r.Output > 1 {
		w.multiToken++
	}
	if w.overloaded() {
		w.verdict, w.reason = fails, overload
		return errDecided
	}
	w.first, w.done = append(w.first, math.Inf(1)), append(w.done, math.Inf(1))
	w.refused = append(w.refused, false)
	return nil
}

// enoughArrived reports whether the arrivals can end. arrival is the time of the next request. The arrivals end after
// maxRequests requests, or if both of these conditions are met:
//
//   - arrival is not before w.lastArrival. If the answers so far take longer than expected, enoughArrived first
//     increases w.lastArrival, but only up to maxSeconds.
//   - So many requests have arrived as the horizon and the confidence intervals need. Arrivals are random, so these may
//     be fewer at w.lastArrival than expected.
func (w *run) enoughArrived(arrival float64) bool {
	w.lastArrival = max(w.lastArrival, min(margin*w.horizon.Answers*w.answer(arrival), max(maxSeconds, w.minSeconds())))
	count := w.next
	if w.slo.limits(TPOT) {
		count = w.multiToken
	}
	return arrival >= w.lastArrival && float64(count)*(1-warmUp) > 1.05*float64(w.measured())+10 || w.next >= maxRequests
}

func (w *run) token(index int, now float64) {
	if math.IsInf(w.first[index], 1) {
		w.waiting--
	}
	w.first[index] = now // with several sequences, that of the last one
}

func (w *run) leave(a sim.Departure) {
	w.departed++
	if math.IsInf(w.first[a.Index], 1) {
		w.waiting--
	}
	if !a.Answered {
		w.refused[a.Index] = true
		return
	}
	w.first[a.Index], w.done[a.Index] = a.First, a.Done
	w.answered++
	w.answering += a.Done - a.Arrival
}

// meanAnswer returns the mean time of the answers in seconds, or 0 if there are none.
func (w *run) meanAnswer() float64 {
	if w.answered == 0 {
		return 0
	}
	return w.answering / float64(w.answered)
}

// answer estimates the mean time of an answer, in seconds. It returns the mean of the finished answers or the mean
// time of requests in the system by Little's law, whichever is longer.
func (w *run) answer(now float64) float64 {
	return max(w.meanAnswer(), float64(w.next-w.departed)/max(float64(w.next), 1)*now)
}

func (w *run) known() int {
	for i := range w.done {
		if math.IsInf(w.done[i], 1) && !w.refused[i] {
			return i
		}
	}
	return len(w.done)
}

// warm returns the index of the first request after the warm-up. end is the time at which arrivals end.
func (w *run) warm(end float64) int {
	begin := max(warmUp*end, warmAnswers*w.meanAnswer())
	after := func(r workload.Request) bool { return r.Arrival/w.rate >= begin }
	if i := slices.IndexFunc(w.requests[:w.next], after); i >= 0 {
		return i
	}
	return w.next
}

// value returns the value of an objective over the requests in [start, end). Refused requests are ignored if they are
// at most 1 % of these requests. If more are refused, the value is +Inf.
func (w *run) value(o Objective, start, end int) statistic {
	var values []float64
	lost := 0
	for i := start; i < end; i++ {
		if w.refused[i] {
			lost++
		} else if v, counts := w.latency(o.Metric, i); counts {
			values = append(values, v)
		}
	}
	if lost > 0 && lost > (end-start)/100 {
		return statistic{Mean: math.Inf(1), Low: math.Inf(1), High: math.Inf(1), count: end - start}
	}
	e := estimateOf(values, o.Level)
	e.Low = max(0, e.Low) // no latency is less
	return e
}

// latency returns a latency, in seconds, of the request i, which must not be refused. It is +Inf if the request is
// not finished. counts is false if m does not apply to the request: an answer of one token has no TPOT.
func (w *run) latency(m Metric, i int) (seconds float64, counts bool) {
	r := &w.requests[i]
	arrival := r.Arrival / w.rate
	switch m {
	case Normalized:
		return (w.done[i] - arrival) / float64(r.Output), true
	case TTFT:
		return w.first[i] - arrival, true
	case TPOT:
		return (w.done[i] - w.first[i]) / float64(r.Output-1), r.Output > 1
	}
	return w.done[i] - arrival, true
}

// tooShort returns the error for a point with too few requests. It wraps ErrShort, and its text contains p.Reason,
// which says how many requests are needed.
func (p Point) tooShort() error {
	return fmt.Errorf("%w: %s; take a longer trace, or --workload", ErrShort, p.Reason)
}

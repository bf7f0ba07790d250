package capacity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// A Horizon is how long requests arrive in a run whose latencies stand for a server that runs
// permanently. A run is lengthened until all of its limits are reached.
type Horizon struct {
	Seconds  float64 // of arrivals
	Answers  float64 // times as long as a mean answer takes
	Requests int     // after the warm-up
}

// DefaultHorizon is what a rate is confirmed with, SearchHorizon what the search
// for it takes, whose result is confirmed. An overload of 1 % makes requests wait
// for 36 s at the end of an hour, for 6 s after ten minutes. CompareHorizon is
// for capacities that are only compared with each other.
var (
	DefaultHorizon = Horizon{Seconds: 3600, Answers: 40}
	SearchHorizon  = Horizon{Seconds: 600, Answers: 20}
	CompareHorizon = Horizon{Seconds: 240, Answers: 16}
)

const (
	leastAnswers = 8         // mean answer times of arrivals below which nothing is judged
	mostSeconds  = 20 * 3600 // of arrivals, unless fewer requests come in them than have to
	mostRequests = 5 << 20   // of a run
	margin       = 1.25      // by which answers may take longer in the end than while requests come
	warmUp       = 0.1       // share of the arrivals that is not measured
	warmAnswers  = 2.0       // mean answer times that are not measured
)

// A steadyRun is the source of a run's requests and judges it while it goes on.
type steadyRun struct {
	set     *requestSet
	rate    float64
	slo     SLO
	horizon Horizon
	whole   bool // do not end before the horizon where it seems to hold,
	patient bool // nor where the objective is missed

	requests []workload.Request // drawn so far
	next     int
	several  int     // of these, those with answers of more than one token
	fit      int     // sequences of mean length that run at once, at most
	until    float64 // s; the end of arrivals so far
	ended    bool    // all requests of a trace have come

	first, done []float64 // s, by request; +Inf: not yet
	refused     []bool
	left        int
	waiting     int     // arrived, without a first token
	answered    int     // and the time that took, together
	answering   float64 // s
	queue       []sample
	check       float64 // s; when the run is judged next
	grew        int     // how often in a row the queue was seen to grow after the least arrivals
	verdict     verdict
	reason      string
}

// errDecided ends a run whose outcome is known.
var errDecided = errors.New("the outcome is clear")

const overload = "more requests come than are served: the queue grows"

type verdict int

const (
	open verdict = iota
	holds
	fails
	short
)

// measureSteady runs a rate until it is clear whether it lasts. A whole run goes
// on until its horizon, unless it fails before.
func measureSteady(ctx context.Context, p *scenario.Plan, set *requestSet, seed uint64, rate float64, slo SLO,
	h Horizon, whole bool) (Point, error) {
	return set.runs.point(ctx, p, seed, &steadyRun{set: set, rate: rate, slo: slo, horizon: h, whole: whole})
}

// observe is measureSteady for a rate whose objective may be missed: it ends before
// the horizon only where the queue grows without end.
func observe(ctx context.Context, p *scenario.Plan, set *requestSet, seed uint64, rate float64, slo SLO,
	h Horizon) (Point, error) {
	return set.runs.point(ctx, p, seed, &steadyRun{set: set, rate: rate, slo: slo, horizon: h, whole: true, patient: true})
}

// run runs the rate, first as if memory were never short, which takes a small part of the time.
func (w *steadyRun) run(ctx context.Context, p *scenario.Plan, seed uint64) (Point, error) {
	counting := *w
	point, err := counting.attempt(ctx, p, seed, true)
	if errors.Is(err, sim.ErrAmple) {
		return w.attempt(ctx, p, seed, false)
	}
	*w = counting
	return point, err
}

func (w *steadyRun) attempt(ctx context.Context, p *scenario.Plan, seed uint64, ample bool) (Point, error) {
	w.horizon.Requests = max(w.horizon.Requests, w.slo.leastRequests())
	w.fit = w.set.fit(p)
	w.until = w.atLeast()
	w.check = min(120, w.until/4)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	config := sim.Config{
		Server: p.Scenario.Server, Decoding: p.Scenario.Decoding, Cost: p.Model, Seed: seed, Ample: ample,
		Left: w.leave, First: w.token,
		Progress: func(now float64, _, _ int) {
			w.queue = append(w.queue, sample{now, w.waiting})
			if w.verdict = w.judgeEarly(now); w.verdict != open {
				cancel()
			}
		},
	}
	result, err := sim.Run(inner, config, w)
	point := Point{Rate: w.rate}
	switch {
	case w.verdict != open: // err is errDecided or a cancellation, perhaps of ctx as well
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

// atLeast returns the seconds of arrivals that a run has even if answers are short.
func (w *steadyRun) atLeast() float64 {
	return max(w.horizon.Seconds, float64(w.horizon.Requests)/(1-warmUp)/w.rate)
}

// Next implements workload.Source: it decides how long the run is.
func (w *steadyRun) Next(r *workload.Request) error {
	if w.next == len(w.requests) {
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
	if w.set.steady && r.Arrival >= w.until { // a trace comes as a whole
		w.until = max(w.until, min(margin*w.horizon.Answers*w.answer(r.Arrival), max(mostSeconds, w.atLeast())))
		if r.Arrival >= w.until && w.enough() || w.next >= mostRequests {
			return io.EOF
		}
	}
	w.next++
	w.waiting++
	if r.Output > 1 {
		w.several++
	}
	if w.overloaded() {
		w.verdict, w.reason = fails, overload
		return errDecided
	}
	w.first, w.done = append(w.first, math.Inf(1)), append(w.done, math.Inf(1))
	w.refused = append(w.refused, false)
	return nil
}

// enough reports whether enough requests were measured after the warm-up for a confidence
// interval. Fewer may arrive than the rate predicts.
func (w *steadyRun) enough() bool {
	count := w.next
	if w.slo.has(TPOT) {
		count = w.several
	}
	return float64(count)*(1-warmUp) > 1.05*float64(w.horizon.Requests)+10
}

func (w *steadyRun) token(index int, now float64) {
	if math.IsInf(w.first[index], 1) {
		w.waiting--
	}
	w.first[index] = now // of several answers that of the last one
}

func (w *steadyRun) leave(a sim.Departure) {
	w.left++
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

// answer returns how long a mean answer takes: that of the finished ones or, if it is longer, the
// time that requests stay in the system by Little's law.
func (w *steadyRun) answer(now float64) float64 {
	mean := 0.0
	if w.answered > 0 {
		mean = w.answering / float64(w.answered)
	}
	return max(mean, float64(w.next-w.left)/max(float64(w.next), 1)*now)
}

// judgeEarly returns the verdict on a run whose outcome is known before its end.
func (w *steadyRun) judgeEarly(now float64) verdict {
	if now < w.check {
		return open
	}
	w.check = min(1.3*now, now+max(300, w.until/12))
	if w.overloaded() {
		w.reason = overload
		return fails
	}
	if w.patient || w.answered == 0 || now < leastAnswers*w.answering/float64(w.answered) {
		return open
	}
	if w.keepsGrowing(now) {
		w.reason = overload
		return fails
	}
	known := w.known()
	from := w.warm(now)
	clear := now >= 120 && known-from >= w.horizon.Requests
	for _, o := range w.slo {
		v := w.value(o, from, known)
		if v.count < w.slo.leastRequests() {
			return open
		}
		if v.Low > o.Limit*1.02 || w.lost(o, from, known) {
			w.reason = fmt.Sprintf("%s is above its limit", o.Of())
			return fails
		}
		clear = clear && v.High < 0.85*o.Limit
	}
	if clear && !w.whole && !w.grows(now) && now >= 20*w.answer(now) {
		return holds
	}
	return open
}

// lost reports whether a quantile will be above its limit however the run goes on: more requests
// are above it already than may be at the end.
func (w *steadyRun) lost(o Objective, from, to int) bool {
	if !w.set.steady || o.Level == 0 {
		return false
	}
	all := w.rate*w.until - float64(from)
	all += 4 * math.Sqrt(max(all, 0)/min(1, w.set.shape))
	may, above := (1-o.Level)*all, 0.0
	for i := from; i < to && above <= may; i++ {
		if v, counts := w.latency(o.Metric, i); counts && !w.refused[i] && v > o.Limit {
			above++
		}
	}
	return above > may
}

// overloaded reports whether more requests wait than chance explains. The number of independent
// arrivals varies by its square root, that of bursts by more.
func (w *steadyRun) overloaded() bool {
	if !w.set.steady {
		return false
	}
	n := float64(w.next)
	return float64(w.waiting) > 64+6*math.Sqrt(n/min(1, w.set.shape))+0.03*n
}

// known returns the index of the first request that has not left.
func (w *steadyRun) known() int {
	for i := range w.done {
		if math.IsInf(w.done[i], 1) && !w.refused[i] {
			return i
		}
	}
	return len(w.done)
}

// warm returns the index of the first request that is measured.
func (w *steadyRun) warm(end float64) int {
	mean := 0.0
	if w.answered > 0 {
		mean = w.answering / float64(w.answered)
	}
	from := max(warmUp*end, warmAnswers*mean)
	for i := range w.next {
		if w.requests[i].Arrival/w.rate >= from {
			return i
		}
	}
	return w.next
}

// judge writes the verdict on a run that has ended.
func (w *steadyRun) judge(p *Point) {
	if w.next == 0 {
		p.Reason = "no request"
		return
	}
	end := w.requests[w.next-1].Arrival / w.rate
	from := w.warm(end)
	measured := w.next - from // or fewer, of which an objective has a value
	p.Holds = true
	for _, o := range w.slo {
		v := w.value(o, from, w.next)
		measured = min(measured, v.count)
		p.Values = append(p.Values, Seconds(v.Mean))
		p.Intervals = append(p.Intervals, Interval{Seconds(v.Low), Seconds(v.High), v.rough})
		if all := w.value(o, 0, w.next); v.Mean > o.Limit || all.Mean > o.Limit {
			p.Holds, p.Reason = false, fmt.Sprintf("%s is above its limit", o.Of())
		}
	}
	p.Span = end
	switch mean := w.answer(0); {
	case !p.Holds:
	case w.grows(end):
		p.Holds, p.Grows, p.Reason = false, true, "the queue grows to the end"
	case w.set.endless && end < mostSeconds/2 && end < 2*leastAnswers*mean && w.answered > 0:
		p.Holds, p.Reason = false, "answers take longer the longer requests come"
	case measured < w.slo.leastRequests() || end < 2*leastAnswers*mean && w.answered > 0:
		p.Holds, p.Short = false, true
		p.Reason = w.tooShort(end, mean, measured, w.next-from)
	}
}

// first returns at least n requests, or all if there are fewer.
func (d *requestSet) first(n int) ([]workload.Request, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	err := d.draw(n)
	return d.requests, err
}

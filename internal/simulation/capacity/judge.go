package capacity

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/simulation/scenario"
)

const (
	minAnswers  = 8   // shortest time of arrivals before a verdict, as a multiple of the mean answer time
	warmUp      = 0.1 // fraction of the arrivals that is not measured
	warmAnswers = 2.0 // shortest time that is not measured, as a multiple of the mean answer time
)

// ErrShort is wrapped when a trace has too few requests to show the latencies of a server in steady state.
var ErrShort = errors.New("too few requests to plan from")

var errDecided = errors.New("the outcome is clear")

const overload = "more requests come than are served: the queue grows"

type verdict int

const (
	undecided verdict = iota
	holds
	fails
)

// judgeEarly returns the verdict on a run in progress, or undecided if the outcome is not clear yet.
func (w *run) judgeEarly(now float64) verdict {
	if w.fixed() {
		if w.effort == brief && w.missed(now) {
			return fails
		}
		return undecided
	}
	if now < w.check {
		return undecided
	}
	w.check = min(1.3*now, now+max(300, w.lastArrival/12))
	if w.overloaded() {
		w.reason = overload
		return fails
	}
	if w.effort == patient || w.answered == 0 || now < minAnswers*w.meanAnswer() {
		return undecided
	}
	if w.keepsGrowing(now) {
		w.reason = overload
		return fails
	}
	known := w.known()
	start := w.warm(now)
	clear := now >= 120 && known-start >= w.measured()
	for _, o := range w.slo {
		v := w.value(o, start, known)
		if v.count < w.slo.minRequests() {
			return undecided
		}
		if v.Low > o.Limit*1.02 || w.lost(o, start, known) {
			w.reason = o.missReason()
			return fails
		}
		clear = clear && v.High < 0.85*o.Limit
	}
	if clear && w.effort == brief && !w.grows(now) && now >= 20*w.answer(now) {
		return holds
	}
	return undecided
}

// lost reports whether a run in progress must miss the objective o, a limit for a quantile. This is so if more requests
// in [start, end) already exceed the limit than the quantile allows over the whole run. The number of requests of the
// whole run is not known yet, so lost takes a number that is very probably too high. For a mean, and for a trace, lost
// returns false.
func (w *run) lost(o Objective, start, end int) bool {
	if !w.set.steady() || o.Level == 0 {
		return false
	}
	all := w.rate*w.lastArrival - float64(start)
	all += 4 * math.Sqrt(max(all, 0)/min(1, w.set.shape))
	allowed, exceeding := (1-o.Level)*all, 0.0
	for i := start; i < end && exceeding <= allowed; i++ {
		if v, counts := w.latency(o.Metric, i); counts && !w.refused[i] && v > o.Limit {
			exceeding++
		}
	}
	return exceeding > allowed
}

// overloaded reports whether more requests wait than random arrivals explain. If n requests arrive independently, the
// standard deviation of their number is √n. With bursts it is larger.
func (w *run) overloaded() bool {
	if !w.set.steady() || w.fixed() {
		return false
	}
	n := float64(w.next)
	return float64(w.waiting) > 64+6*math.Sqrt(n/min(1, w.set.shape))+0.03*n
}

func (w *run) judge(p *Point) {
	if w.next == 0 {
		p.Reason = "no request"
		return
	}
	if w.fixed() {
		w.judgeFixed(p)
		return
	}
	end := w.requests[w.next-1].Arrival / w.rate
	start := w.warm(end)
	measured := w.next - start // fewer if an objective has no value for some
	p.Holds = true
	for _, o := range w.slo {
		v := w.value(o, start, w.next)
		measured = min(measured, v.count)
		p.Values = append(p.Values, Seconds(v.Mean))
		p.Intervals = append(p.Intervals, Interval{Seconds(v.Low), Seconds(v.High), v.rough})
		if all := w.value(o, 0, w.next); v.Mean > o.Limit || all.Mean > o.Limit {
			p.Holds, p.Reason = false, o.missReason()
		}
	}
	p.Span = end
	switch mean := w.answer(0); {
	case !p.Holds:
	case w.grows(end):
		p.Holds, p.Grows, p.Reason = false, true, "the queue grows to the end"
	case w.set.steady() && end < maxSeconds/2 && end < 2*minAnswers*mean && w.answered > 0:
		p.Holds, p.Reason = false, "answers take longer the longer requests come"
	case measured < w.slo.minRequests() || end < 2*minAnswers*mean && w.answered > 0:
		p.Holds, p.Short = false, true
		p.Reason = w.tooShort(end, mean, measured, w.next-start)
	}
}

// tooShort returns a text that says how many requests a run has, and about how many it needs. afterWarmUp is the number
// of requests after the warm-up. measured is how many of these have a value for every objective.
//
// A run must last as long as 16 answers. By Little's law, the number of requests that arrive during one answer equals
// the number of requests in the system. The run therefore needs 16 times as many requests as there are in the system.
// At the final rate, which is not known yet, the system may have more requests than in this run. If the system is full,
// the run needs 16 * margin requests for each sequence that can run at once. The text also says this number if it is
// the larger one.
func (w *run) tooShort(end, answer float64, measured, afterWarmUp int) string {
	minimum := w.slo.minRequests()
	text := fmt.Sprintf("%d requests come within %.3g s at %.3g requests/s; it takes arrivals over %d answers of %.3g s",
		w.next, end, w.rate, 2*minAnswers, answer)
	needed := rounded(float64(w.next) * 2 * minAnswers * answer / end)
	if measured < minimum {
		kind := ""
		if measured < afterWarmUp {
			kind = " and have answers of more than one token"
		}
		text = fmt.Sprintf("%d requests, of which %d come after the warm-up%s; it takes %d of these", w.next, measured,
			kind, minimum)
		needed = rounded(float64(w.next*minimum) / float64(max(1, measured)))
	}
	text += fmt.Sprintf(", so at least about %.0f requests", needed)
	if upper := rounded(2 * minAnswers * margin * float64(w.fit)); upper > needed {
		text += fmt.Sprintf(", and up to about %.0f if the server is nearly full at the answer: %.0f for each of %d "+
			"sequences that run at once", upper, 2*minAnswers*margin, w.fit)
	}
	return text
}

func rounded(n float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return unit * math.Ceil(1.02*n/unit)
}

// fit estimates how many sequences can run at once, each with its prompt and half of its answer in memory.
func (d *requestSet) fit(p *scenario.Plan) int {
	d.lock.Lock()
	defer d.lock.Unlock()
	tokens := 0.0
	sample := d.requests[:min(len(d.requests), firstDrawn)]
	for i := range sample {
		tokens += (float64(sample[i].Prompt) + float64(sample[i].Output)/2) / float64(len(sample))
	}
	v := &p.Scenario.Server
	return max(1, min(v.MaxNumSeqs, int(float64(v.NumGPUBlocks)*float64(v.BlockSize)/max(1, tokens))))
}

// A sample is the number of waiting requests at a time.
type sample struct {
	Now     float64 // s
	Waiting int
}

// queueGrows reports whether the queue grows between the times begin and end, while requests arrive. The growth must
// be significant, and more than 1 % of the arrived requests.
func queueGrows(queue []sample, begin, end float64, arrived int) bool {
	const parts = 10
	var sums, counts [parts]float64
	for _, s := range queue {
		if s.Now >= begin && s.Now < end {
			i := min(parts-1, int(parts*(s.Now-begin)/(end-begin)))
			sums[i] += float64(s.Waiting)
			counts[i]++
		}
	}
	var means []float64
	for i := range sums {
		if counts[i] > 0 {
			means = append(means, sums[i]/counts[i])
		}
	}
	slope, deviations := trend(means)
	return deviations > 3 && slope*float64(len(means)) > 0.01*float64(arrived)
}

// grows reports whether the number of requests that wait for their first token grows after the warm-up.
func (w *run) grows(end float64) bool {
	begin := warmUp * end
	arrived := 0
	for i := w.next - 1; i >= 0 && w.requests[i].Arrival/w.rate >= begin; i-- {
		arrived++
	}
	return queueGrows(w.queue, begin, end, arrived)
}

// growsFor is the number of checks in a row that must find a growing queue before keepsGrowing returns true.
const growsFor = 3

// keepsGrowing reports whether the queue has grown at the last growsFor checks of a run that enoughArrived may have
// extended. While the queue grows, the answers take longer and longer, and so enoughArrived extends the run again.
// Without this check, it would do so up to maxSeconds. For a trace, keepsGrowing returns false.
func (w *run) keepsGrowing(now float64) bool {
	if !w.set.steady() || now < w.minSeconds() || !w.grows(now) {
		w.grew = 0
		return false
	}
	w.grew++
	return w.grew >= growsFor
}

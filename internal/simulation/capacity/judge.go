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
	open verdict = iota
	holds
	fails
)

// judgeEarly returns the verdict on a run in progress, or open if the outcome is not clear yet.
func (w *run) judgeEarly(now float64) verdict {
	if w.fixed() {
		if w.effort == brief && w.missed(now) {
			return fails
		}
		return open
	}
	if now < w.check {
		return open
	}
	w.check = min(1.3*now, now+max(300, w.until/12))
	if w.overloaded() {
		w.reason = overload
		return fails
	}
	if w.effort == patient || w.answered == 0 || now < minAnswers*w.meanAnswer() {
		return open
	}
	if w.keepsGrowing(now) {
		w.reason = overload
		return fails
	}
	known := w.known()
	from := w.warm(now)
	clear := now >= 120 && known-from >= w.measured()
	for _, o := range w.slo {
		v := w.value(o, from, known)
		if v.count < w.slo.minRequests() {
			return open
		}
		if v.Low > o.Limit*1.02 || w.lost(o, from, known) {
			w.reason = o.above()
			return fails
		}
		clear = clear && v.High < 0.85*o.Limit
	}
	if clear && w.effort == brief && !w.grows(now) && now >= 20*w.answer(now) {
		return holds
	}
	return open
}

// lost reports whether a run in progress must miss the objective o, a limit for a quantile. This is so if more
// requests are above the limit already than the quantile allows at the end of the run. For the number of requests at
// the end, lost takes a generous upper estimate.
func (w *run) lost(o Objective, from, to int) bool {
	if !w.set.steady() || o.Level == 0 {
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

// overloaded reports whether more requests wait than random arrivals explain. The standard deviation of the
// number of arrivals is its square root if they are independent, and more with bursts.
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
	from := w.warm(end)
	measured := w.next - from // fewer if an objective has no value for some
	p.Holds = true
	for _, o := range w.slo {
		v := w.value(o, from, w.next)
		measured = min(measured, v.count)
		p.Values = append(p.Values, Seconds(v.Mean))
		p.Intervals = append(p.Intervals, Interval{Seconds(v.Low), Seconds(v.High), v.rough})
		if all := w.value(o, 0, w.next); v.Mean > o.Limit || all.Mean > o.Limit {
			p.Holds, p.Reason = false, o.above()
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
		p.Reason = w.tooShort(end, mean, measured, w.next-from)
	}
}

// tooShort describes how many requests a run has, and about how many it needs. The parameter after is the number of
// requests after the warm-up; measured is how many of these have a value for every objective. A run must last 16
// answer times. By Little's law, 16 times as many requests arrive in this time as are in the system at once. For the
// upper estimate of the number needed, tooShort assumes that the system is full.
func (w *run) tooShort(end, answer float64, measured, after int) string {
	least := w.slo.minRequests()
	text := fmt.Sprintf("%d requests come within %.3g s at %.3g requests/s; it takes arrivals over %d answers of %.3g s",
		w.next, end, w.rate, 2*minAnswers, answer)
	needed := rounded(float64(w.next) * 2 * minAnswers * answer / end)
	if measured < least {
		which := ""
		if measured < after {
			which = " and have answers of more than one token"
		}
		text = fmt.Sprintf("%d requests, of which %d come after the warm-up%s; it takes %d of these", w.next, measured,
			which, least)
		needed = rounded(float64(w.next*least) / float64(max(1, measured)))
	}
	text += fmt.Sprintf(", so at least about %.0f requests", needed)
	if most := rounded(2 * minAnswers * margin * float64(w.fit)); most > needed {
		text += fmt.Sprintf(", and up to about %.0f if the server is nearly full at the answer: %.0f for each of %d "+
			"sequences that run at once", most, 2*minAnswers*margin, w.fit)
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
	some := d.requests[:min(len(d.requests), firstDrawn)]
	for i := range some {
		tokens += (float64(some[i].Prompt) + float64(some[i].Output)/2) / float64(len(some))
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

// keepsGrowing reports whether the queue still grows in a run that the method enough has extended. Such a run's
// latencies keep rising, so without this check enough would extend it up to maxSeconds.
func (w *run) keepsGrowing(now float64) bool {
	if !w.set.steady() || now < w.minSeconds() || !w.grows(now) {
		w.grew = 0
		return false
	}
	w.grew++
	return w.grew >= growsFor
}

package capacity

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/sim/scenario"
)

// ErrShort is wrapped when a trace is too short for its latencies to be those of
// a server that runs on.
var ErrShort = errors.New("too few requests to plan from")

// tooShort says how many requests a run has, of which some were measured of those after the
// warm-up, and about how many it takes at least and at most. Arrivals over 16 answers are 16 times as
// many as there are in the system (Little); how many that are depends on the rate that holds: a full
// server's sequences, and some that wait.
func (w *steadyRun) tooShort(end, answer float64, measured, after int) string {
	least := w.slo.leastRequests()
	text := fmt.Sprintf("%d requests come within %.3g s at %.3g requests/s; it takes arrivals over %d answers of %.3g s",
		w.next, end, w.rate, 2*leastAnswers, answer)
	needed := enough(float64(w.next) * 2 * leastAnswers * answer / end)
	if measured < least {
		which := ""
		if measured < after {
			which = " and have answers of more than one token"
		}
		text = fmt.Sprintf("%d requests, of which %d come after the warm-up%s; it takes %d of these", w.next, measured,
			which, least)
		needed = enough(float64(w.next*least) / float64(max(1, measured)))
	}
	text += fmt.Sprintf(", so at least about %.0f requests", needed)
	if most := enough(2 * leastAnswers * margin * float64(w.fit)); most > needed {
		text += fmt.Sprintf(", and up to about %.0f if the server is nearly full at the answer: %.0f for each of %d "+
			"sequences that run at once", most, 2*leastAnswers*margin, w.fit)
	}
	return text
}

// enough returns a little more than n, a number with two digits that are not zero.
func enough(n float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return unit * math.Ceil(1.02*n/unit)
}

// fit returns how many sequences of mean length run at once, at most.
func (d *requestSet) fit(p *scenario.Plan) int {
	d.lock.Lock()
	defer d.lock.Unlock()
	tokens := 0.0
	some := d.requests[:min(len(d.requests), defaultRequests)]
	for i := range some {
		tokens += (float64(some[i].Prompt) + float64(some[i].Output)/2) / float64(len(some))
	}
	v := &p.Scenario.Server
	return max(1, min(v.MaxNumSeqs, int(float64(v.NumGPUBlocks)*float64(v.BlockSize)/max(1, tokens))))
}

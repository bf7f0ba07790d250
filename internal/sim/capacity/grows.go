package capacity

// A sample is how many requests wait at a time, in seconds.
type sample struct {
	Now     float64
	Waiting int
}

// queueGrows reports whether the queue grows for as long as requests arrive: its trend from begin to end, while
// arrived requests come, is not chance and is more than 1 % of the arrivals.
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

// grows is queueGrows after the warm-up, for requests that wait for their first token.
func (w *steadyRun) grows(end float64) bool {
	begin := warmUp * end
	arrived := 0
	for i := w.next - 1; i >= 0 && w.requests[i].Arrival/w.rate >= begin; i-- {
		arrived++
	}
	return queueGrows(w.queue, begin, end, arrived)
}

// growsFor is how often in a row the queue has to be seen growing, at the times of judgeEarly, which are
// a third apart or less.
const growsFor = 3

// keepsGrowing reports whether the queue of a run that was lengthened grows. Such a run would not end
// before mostSeconds, because its answers take longer and longer.
func (w *steadyRun) keepsGrowing(now float64) bool {
	if !w.set.steady || now < w.atLeast() || !w.grows(now) {
		w.grew = 0
		return false
	}
	w.grew++
	return w.grew >= growsFor
}

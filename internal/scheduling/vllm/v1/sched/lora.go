package sched

import "slices"

// loras limits the adapters that run at a time (vLLM: max_loras).
type loras struct {
	noExtension
	s     *Scheduler
	limit int
	ids   []int64
}

// startAdmission collects the adapters of all running requests. vLLM collects only the adapters of the step that is
// being scheduled. A running request can be without a row in this step, for example while its last row is in flight.
// Its adapter is then not counted, and vLLM can admit too many adapters. A later step with rows of all these requests
// then fails.
func (l *loras) startAdmission() bool {
	l.ids = l.ids[:0]
	if l.s.differs.adapters {
		for _, r := range l.s.running {
			l.scheduled(r)
		}
		return true
	}
	for i := range l.s.batch.rows {
		l.scheduled(l.s.batch.rows[i].r)
	}
	return true
}

func (l *loras) admits(r *request) bool {
	return r.loraID <= 0 || len(l.ids) < l.limit || slices.Contains(l.ids, r.loraID)
}

func (l *loras) scheduled(r *request) {
	if r.loraID > 0 && !slices.Contains(l.ids, r.loraID) {
		l.ids = append(l.ids, r.loraID)
	}
}

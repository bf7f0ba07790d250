package sched

import "slices"

// loras are the adapters that run, if there is a limit to them (vLLM: max_loras).
type loras struct {
	most int // 0: no limit
	ids  []int64
}

// admits reports whether a request with an adapter may run; 0 is the base model.
func (l *loras) admits(id int64) bool {
	return l.most == 0 || id <= 0 || len(l.ids) < l.most || slices.Contains(l.ids, id)
}

func (l *loras) add(id int64) {
	if l.most > 0 && id > 0 && !slices.Contains(l.ids, id) {
		l.ids = append(l.ids, id)
	}
}

// noteLoRAs notes the adapters of running requests. vLLM looks only at those that are in the
// step, so it can admit one adapter too many while a decode is in flight, and
// fails in the step that has all of them.
func (s *Scheduler) noteLoRAs() {
	if s.loras.most == 0 {
		return
	}
	s.loras.ids = s.loras.ids[:0]
	if s.config.AsVLLM {
		for i := range s.batch.rows {
			s.loras.add(s.batch.rows[i].r.loraID)
		}
		return
	}
	for _, r := range s.running {
		s.loras.add(r.loraID)
	}
}

package sched

// What vLLM does when loads have failed (Config.AsVLLM; vllm/v1/RULES.md §19). The blocks keep their keys, what void
// rows write is taken as whole, and one request computes a shared block for all.

// findVoidRowsAsVLLM is findVoidRows where only missing blocks are bad. What is sampled for a request that no longer
// runs is delivered.
func (s *Scheduler) findVoidRowsAsVLLM(f *failure, out *FailedLoad) {
	s.findVoidRunning(f, s.notInFlightAsVLLM)
	for k := range s.flight.n {
		b := s.flight.at(k)
		for i := range b.rows {
			e := &b.rows[i]
			if e.id == voided {
				continue
			}
			if reads, _ := b.touched.row(i); e.admitted {
				f.void[e.id] = f.anyBad(reads)
			}
			if f.void[e.id] && (e.r.id != e.id || e.r.status == running) {
				out.Void = append(out.Void, VoidRow{k, i})
			}
		}
	}
}

// notInFlightAsVLLM subtracts e, the row in the oldest step, in any case, and treats a negative number as 0.
func (s *Scheduler) notInFlightAsVLLM(r *request, e *entry) int {
	if e == nil {
		return r.kv.NumComputedTokens
	}
	return max(r.kv.NumComputedTokens-int(e.tokens), 0)
}

func (s *Scheduler) failAsVLLM(f *failure) {
	for i := range f.again {
		if a := &f.again[i]; a.r.status == running {
			s.failRunningAsVLLM(a)
		} else {
			s.cutLoad(a.r, a.at)
		}
	}
}

// failRunningAsVLLM makes a running request go on from the first failed block that no other request computes again.
func (s *Scheduler) failRunningAsVLLM(a *setback) {
	e := s.oldestEntry(a.r)
	computed := s.notInFlightAsVLLM(a.r, e)
	if a.first >= 0 {
		computed = a.first * s.blockSizes[0]
	}
	if e != nil {
		s.void(e)
	}
	a.r.kv.NumComputedTokens = computed
	s.restart(a.r)
}

package sched

import (
	"fmt"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// StepFailed reports that a step in flight, or a row of such a step, was not computed. It undoes all steps in flight,
// because each depends on the one before. A running request keeps its blocks and computes the same tokens again, with
// two exceptions. It is preempted if one of the steps copies a block for it, or if it has a Mamba state, because the
// steps have overwritten this state.
//
// Requests that were preempted while the steps were scheduled stay preempted. Requests that the steps admitted lose
// their blocks and wait again, before other requests that the policy treats as equal. Blocks that the steps should have
// written cannot be hit. If a running request had a row in the steps, its next row has its whole block table.
func (s *Scheduler) StepFailed() error {
	s.mu.Lock()
	defer s.unlock()
	if s.flight.n == 0 {
		return fmt.Errorf("%w: no step is in flight", ErrOrder)
	}
	if s.connector != nil {
		s.connector.failing(s.flight.batches[0].seq)
	}
	s.cache.EvictSince(uint32(s.flight.batches[0].seq))
	var batches []*batch
	for ; s.flight.n > 0; s.flight.n-- {
		b := s.flight.batches[s.flight.n-1]
		for i := len(b.rows) - 1; i >= 0; i-- {
			e := &b.rows[i]
			switch r := e.r; {
			case r.id != e.id:
			case r.status == parked:
				r.inFlight -= int(e.tokens)
			default:
				s.undo(r, e, b)
			}
		}
		// The worker may not have got these.
		s.preempted = append(s.preempted, b.preempted...)
		s.finished = append(s.finished, b.finished...)
		batches = append(batches, b)
		b.rows = b.rows[:0]
	}
	for _, x := range s.extensions {
		x.failed(batches)
	}
	s.cache.EndStep(s.steps)
	return nil
}

// undo undoes the row e of r in batch b. The caller undoes the rows of r from the newest to the oldest.
//
// A row is stale if r has lost its blocks, or has gone back to earlier tokens, after the row was scheduled. So the
// stale rows of r are older than its other rows. e is the newest row of r in flight, because the caller has undone the
// newer ones. So if e is stale, all rows of r in flight are stale: r.stale, the number of tokens of stale rows, is then
// equal to r.inFlight.
//
// r.kv.NumComputedTokens does not include the tokens of a stale row. So for a stale row, undo only stops counting its
// tokens as in flight. If r runs, its next row has its whole block table.
func (s *Scheduler) undo(r *request, e *entry, b *batch) {
	stale := r.inFlight <= r.stale
	tokens, drafts := int(e.tokens), int(e.drafts)
	r.inFlight -= tokens
	if r.status == running { // the worker may not have got the blocks of this row
		r.resend = KindResumed
		if e.kind == KindNew {
			r.resend = KindNew
		}
	}
	if stale {
		r.stale -= tokens
		return
	}
	computed := r.kv.NumComputedTokens - tokens // not e.computed: drafts before it may have been rejected
	r.placeholders = max(r.placeholders-1-drafts, 0)
	r.eligible = 0
	copied := false
	for _, c := range b.copies {
		copied = copied || c.Request == r.kv
	}
	switch {
	case e.admitted:
		s.undoAdmit(r, e)
		return
	case copied || !r.kv.Rewind(computed):
		s.removeRunning(r)
		s.preempt(r)
		return
	}
	s.encoder.wentBack(r)
	r.prefill = e.prefill
	r.drafts = r.drafts[:0]
	r.drafts = append(r.drafts, b.drafts[e.draft:e.draft+e.drafts]...)
}

// undoAdmit puts a request at the front of the queue, as if it had not been admitted.
func (s *Scheduler) undoAdmit(r *request, e *entry) {
	s.removeRunning(r)
	s.connector.lost(r, kvcache.UndoAdmit)
	s.extensions.released(r)
	s.cache.Release(r.kv, kvcache.UndoAdmit, 0)
	r.status = waiting
	if e.kind == KindResumed {
		r.status = preempted
	}
	r.drafts = r.drafts[:0]
	r.resend = KindRunning
	r.placeholders = 0
	s.waiting.pushFront(r)
}

// undoRow undoes the row e, for which the model sampled nothing, and the later rows of the same request r.
func (s *Scheduler) undoRow(r *request, e *entry) {
	computed := r.kv.NumComputedTokens - r.inFlight - int(e.tokens)
	if r.kv.Rewind(computed) {
		r.drafts = r.drafts[:0]
		r.prefill = e.prefill
		r.placeholders, r.eligible = 0, 0
		r.stale = r.inFlight
		s.encoder.wentBack(r)
	} else {
		r.kv.EvictFrom(computed)
		s.removeRunning(r)
		s.preempt(r)
	}
	r.dropStale = true
}

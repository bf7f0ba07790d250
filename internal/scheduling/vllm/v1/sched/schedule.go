package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Schedule fills step with the next step (vllm/v1/RULES.md §14). It is an error
// if as many steps as may be are in flight. A step without rows is not in
// flight: nothing is to be updated. Unless Config.AsVLLM is set, it means that
// nothing can run before another call: an update, an Add, a Release.
func (s *Scheduler) Schedule(step *Step) error {
	s.mu.Lock()
	defer s.unlock()
	if s.flight.full() {
		return fmt.Errorf("%w: %d steps are in flight and %d may be: update the oldest first", ErrOrder, s.flight.n, s.flight.n)
	}
	b := s.flight.at(s.flight.n)
	b.reset()
	s.steps++
	s.batch, b.seq = b, s.steps
	s.cache.StartStep(b.seq)
	s.fill(b)
	for i := range b.rows {
		s.advance(&b.rows[i])
	}
	s.write(step)
	if invariants.Enabled {
		invariants.Hold(func() error { return s.checkStep(step) })
	}
	if len(b.rows) > 0 {
		s.flight.n++
	}
	return nil
}

// fill schedules both passes. A request that had to preempt itself leaves a
// step without rows, in which blocks are free again: vLLM gives it to the
// engine, which schedules once more.
func (s *Scheduler) fill(b *batch) {
	admits := s.pause == PauseNone
	for {
		b.budget, b.starved = s.config.MaxNumBatchedTokens, false
		s.extensions.startPass()
		if s.pause == PauseAll {
			b.budget = 0
		}
		s.scheduleRunning()
		if s.extensions.startAdmission() && admits && !b.starved {
			s.admitWaiting()
		}
		switch {
		case len(b.rows) > 0 || !s.differs.steps || b.waits:
			return
		case b.starved:
		case slices.ContainsFunc(s.extensions, extension.unblock):
			admits = admits && len(s.running) == 0 // or one that was preempted comes back, in place of those that waited for it
		default:
			return
		}
	}
}

// advance counts the tokens of a row as computed. With asynchronous scheduling
// a row that samples leaves placeholders for its tokens, which the next
// step may use (RULES.md §15).
func (s *Scheduler) advance(e *entry) {
	r := e.r
	e.prefill = r.prefill || e.admitted
	computed := int(e.computed + e.tokens)
	r.kv.NumComputedTokens = computed
	r.inFlight += int(e.tokens)
	r.prefill = computed < r.kv.NumTokens()+r.placeholders
	e.samples = !r.prefill
	if !s.config.AsyncScheduling || r.prefill {
		return
	}
	r.placeholders += 1 + int(e.drafts)
	r.drafts = r.drafts[:0]
	for range s.config.NumSpeculativeTokens {
		r.drafts = append(r.drafts, -1)
	}
	r.eligible = s.steps + uint64(s.config.PipelineParallelSize)
}

// scheduleRunning is the first pass: running requests continue, and if blocks run out the least
// important ones lose theirs.
func (s *Scheduler) scheduleRunning() {
	b := s.batch
	for at := 0; at < len(s.running) && b.budget > 0; at++ {
		r := s.running[at]
		n := s.runningTokens(r)
		if n <= 0 {
			continue // the next one may go on
		}
		var got outcome
		if at, got = s.makeRoom(r, n, at); got == noRoom {
			return
		} else if got == again {
			at--
			continue
		}
		e := b.add()
		e.r, e.id, e.kind = r, r.id, r.resend
		e.tokens, e.computed = int32(n), int32(r.kv.NumComputedTokens)
		e.from = int32(len(b.from) - s.groups)
		r.resend = KindRunning
		s.takeDrafts(r, e)
		b.budget -= n
		s.extensions.scheduled(r)
		b.prefill = b.prefill || r.prefill
	}
}

// runningTokens is how many tokens a running request computes in this step.
func (s *Scheduler) runningTokens(r *request) int {
	computed := r.kv.NumComputedTokens
	if r.placeholders > 0 && computed+2-r.placeholders >= r.kv.NumPromptTokens+r.maxTokens {
		return 0 // it ends with a step in flight, even if all drafts of that are rejected
	}
	if s.steps < r.eligible && (s.flight.n > 0 || !s.differs.steps) {
		return 0 // its last step is still in the pipeline
	}
	n := r.kv.NumTokens() + len(r.drafts) + r.placeholders - computed
	if limit := s.config.LongPrefillTokenThreshold; limit > 0 {
		n = min(n, limit)
	}
	n = min(n, s.batch.budget, s.longest-computed-1)
	return max(s.extensions.clip(r, computed, n), 0)
}

// An outcome is the result of makeRoom.
type outcome uint8

const (
	noRoom  outcome = iota
	hasRoom         // r has its blocks
	again           // an output of the encoder that r may need is gone: its number of tokens must be found again
)

// makeRoom allocates blocks for n tokens of r, which is number at of running. It preempts others
// until that succeeds, at last r itself, unless an update will free blocks. It returns the new
// place of r.
func (s *Scheduler) makeRoom(r *request, n, at int) (int, outcome) {
	a := kvcache.Alloc{NumNewTokens: n, NumLookaheadTokens: s.config.NumLookaheadTokens, NumInFlightTokens: r.inFlight}
	for {
		from := s.lengths(r)
		if s.allocate(r, &a) {
			return at, hasRoom
		}
		s.batch.from = s.batch.from[:from]
		s.batch.starved = true
		if s.differs.deferred && s.cache.NumDeferred() > 0 {
			s.batch.waits = true // blocks come with an update; vLLM would preempt all others
			return at, noRoom
		}
		victim := s.order.victim(s)
		v := s.running[victim]
		if v == r && slices.ContainsFunc(s.extensions, extension.freeBlocks) {
			continue
		}
		if victim < at {
			at--
		}
		s.running = slices.Delete(s.running, victim, victim+1)
		gone := s.unschedule(v)
		s.preempt(v)
		switch {
		case v == r:
			s.extensions.yielded()
			return at, noRoom
		case gone && r.inputs != nil:
			return at, again
		}
	}
}

// allocate panics on misuse, which can only be a mistake in this package.
func (s *Scheduler) allocate(r *request, a *kvcache.Alloc) bool {
	ok, err := s.cache.Allocate(r.kv, a)
	if err != nil {
		panic("sched: " + err.Error())
	}
	return ok
}

// lengths records the lengths of the tables of r, and returns where.
func (s *Scheduler) lengths(r *request) int {
	from := len(s.batch.from)
	for g := range s.groups {
		s.batch.from = append(s.batch.from, len(r.kv.Table(g)))
	}
	return from
}

// unschedule takes a victim out of the batch, if it is there, and returns its
// tokens to the budget. What it registered in this step will not be computed, and what it was to copy is not copied. It
// reports whether an output of the encoder is gone, too.
func (s *Scheduler) unschedule(r *request) (gone bool) {
	b := s.batch
	i := slices.IndexFunc(b.rows, func(e entry) bool { return e.r == r })
	if i < 0 {
		return false
	}
	b.budget += int(b.rows[i].tokens)
	s.evictFrom(r, int(b.rows[i].computed))
	if s.differs.copies {
		s.cache.Withdraw(r.kv)
	}
	b.rows = slices.Delete(b.rows, i, i+1)
	return s.extensions.unscheduled(r)
}

// evictFrom removes the keys of blocks of r that hold tokens from computed on; vLLM keeps them.
func (s *Scheduler) evictFrom(r *request, computed int) {
	if s.differs.keys {
		r.kv.EvictFrom(computed)
	}
}

// takeDrafts schedules the drafts that n tokens reach, and drops the others.
func (s *Scheduler) takeDrafts(r *request, e *entry) {
	if len(r.drafts) == 0 {
		return
	}
	if n := int(e.tokens+e.computed) - r.kv.NumTokens() - r.placeholders; n > 0 {
		s.setDrafts(e, r.drafts[:min(n, len(r.drafts))])
	}
	r.drafts = r.drafts[:0]
}

func (s *Scheduler) setDrafts(e *entry, drafts []int32) {
	e.draft, e.drafts = int32(len(s.batch.drafts)), int32(len(drafts))
	s.batch.drafts = append(s.batch.drafts, drafts...)
}

// schedule puts e into the batch. The lengths of its tables were noted last.
func (s *Scheduler) schedule(e entry) {
	e.from = int32(len(s.batch.from) - s.groups)
	*s.batch.add() = e
	s.batch.budget -= int(e.tokens)
}

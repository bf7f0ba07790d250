package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Schedule sets step to the next step (vllm/v1/RULES.md §14). It returns an error if Config.MaxConcurrentBatches steps
// are in flight. A step without rows is not in flight and must not be updated. Unless Config.AsVLLM is true, a step is
// empty only if no request can run in the present state, or if a running request waits for blocks that an Update will
// free. Calls such as Update, Add or Release change the state.
func (s *Scheduler) Schedule(step *Step) error {
	s.mu.Lock()
	defer s.unlock()
	if s.flight.n == len(s.flight.batches) {
		return fmt.Errorf("%w: %d steps are in flight, which is the most: update the oldest first", ErrOrder, s.flight.n)
	}
	b := s.flight.batches[s.flight.n]
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

// fill schedules running requests, and after them waiting requests. No request is admitted if a running request lacked
// blocks. If the batch is empty because a request has preempted itself, fill tries again, because the blocks of this
// request are free now. It also tries again if an extension then frees something that requests wait for. vLLM returns
// an empty step, and its engine schedules again.
func (s *Scheduler) fill(b *batch) {
	admits := s.pause == PauseNone
	for {
		b.budget, b.starved = s.config.MaxNumBatchedTokens, false
		for _, x := range s.extensions {
			x.startPass()
		}
		if s.pause == PauseAll {
			b.budget = 0
		}
		s.scheduleRunning()
		admit := admits && !b.starved
		for _, x := range s.extensions {
			admit = x.startAdmission() && admit
		}
		if admit {
			s.admitWaiting()
		}
		switch {
		case len(b.rows) > 0 || !s.differs.steps || b.awaitsUpdate:
			return
		case b.starved:
		case slices.ContainsFunc(s.extensions, extension.unblock):
			admits = admits && len(s.running) == 0 // otherwise the preempted request could be admitted before the requests that waited
		default:
			return
		}
	}
}

// advance counts the tokens of a row as computed. With asynchronous scheduling, if the row samples, advance adds
// placeholders for the sampled tokens, so that the next step can compute them (RULES.md §15).
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

// scheduleRunning is the first pass, in which running requests continue.
func (s *Scheduler) scheduleRunning() {
	b := s.batch
	for index := 0; index < len(s.running) && b.budget > 0; index++ {
		r := s.running[index]
		n := s.runningTokens(r)
		if n <= 0 {
			continue
		}
		var got outcome
		if index, got = s.allocateOrPreempt(r, n, index); got == outOfBlocks {
			return
		} else if got == retry {
			index--
			continue
		}
		e := b.add()
		e.r, e.id, e.kind = r, r.id, r.resend
		e.tokens, e.computed = int32(n), int32(r.kv.NumComputedTokens)
		e.firstLen = int32(len(b.tableLens) - s.groups)
		r.resend = KindRunning
		s.takeDrafts(r, e)
		b.budget -= n
		s.extensions.scheduled(r)
		b.prefill = b.prefill || r.prefill
	}
}

func (s *Scheduler) runningTokens(r *request) int {
	computed := r.kv.NumComputedTokens
	if r.placeholders > 0 && computed+2-r.placeholders >= r.kv.NumPromptTokens+r.maxTokens {
		return 0 // r ends with a step in flight, even if all drafts of that step are rejected
	}
	if s.steps < r.eligible && (s.flight.n > 0 || !s.differs.steps) {
		return 0 // its last row is still in the pipeline
	}
	n := r.kv.NumTokens() + len(r.drafts) + r.placeholders - computed
	if limit := s.config.LongPrefillTokenThreshold; limit > 0 {
		n = min(n, limit)
	}
	n = min(n, s.batch.budget, s.longest-computed-1)
	return max(s.extensions.clip(r, computed, n), 0)
}

// An outcome is the result of allocateOrPreempt.
type outcome uint8

const (
	outOfBlocks outcome = iota
	allocated           // r has its blocks
	retry               // an output of the encoder is gone, so r may have to compute fewer tokens
)

// allocateOrPreempt allocates blocks for n tokens of r, which is s.running[index], and returns the new index of r.
// While too few blocks are free, it preempts the request that s.order.victim selects, until r has its blocks or is
// itself preempted. Before it preempts r, it frees the blocks of a request that still waits although its load is over,
// if there is one. It preempts no request while blocks are kept for a step in flight, because the Update of this step
// will free them. (vLLM preempts all the same, and frees no blocks of waiting requests.)
func (s *Scheduler) allocateOrPreempt(r *request, n, index int) (int, outcome) {
	a := kvcache.Alloc{NumNewTokens: n, NumLookaheadTokens: s.config.NumLookaheadTokens, NumInFlightTokens: r.inFlight}
	for {
		start := s.lengths(r)
		if s.allocate(r, &a) {
			return index, allocated
		}
		s.batch.tableLens = s.batch.tableLens[:start]
		s.batch.starved = true
		if s.differs.deferred && s.cache.NumDeferred() > 0 {
			s.batch.awaitsUpdate = true // vLLM preempts requests
			return index, outOfBlocks
		}
		victim := s.order.victim(s)
		v := s.running[victim]
		if v == r && s.connector != nil && s.connector.freeBlocks() {
			continue
		}
		if victim < index {
			index--
		}
		s.running = slices.Delete(s.running, victim, victim+1)
		gone := s.unschedule(v)
		s.preempt(v)
		switch {
		case v == r:
			if s.encoder != nil {
				s.encoder.yielded()
			}
			return index, outOfBlocks
		case gone && r.inputs != nil:
			return index, retry
		}
	}
}

// allocate panics if kvcache reports misuse.
func (s *Scheduler) allocate(r *request, a *kvcache.Alloc) bool {
	ok, err := s.cache.Allocate(r.kv, a)
	if err != nil {
		panic("sched: " + err.Error())
	}
	return ok
}

func (s *Scheduler) lengths(r *request) int {
	start := len(s.batch.tableLens)
	for g := range s.groups {
		s.batch.tableLens = append(s.batch.tableLens, len(r.kv.Table(g)))
	}
	return start
}

// unschedule removes the row of a preempted request from the batch. It also removes the keys that the request's blocks
// got in this step, the request's copies, and its encoder inputs. It reports whether it removed an encoder output that
// another request may have relied on. (vLLM keeps the keys, the copies and the outputs.)
func (s *Scheduler) unschedule(r *request) bool {
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
	return s.encoder.unscheduled(r)
}

// evictFrom removes the keys of the blocks of r that contain the token at position pos or later tokens. vLLM keeps
// these keys.
func (s *Scheduler) evictFrom(r *request, pos int) {
	if s.differs.keys {
		r.kv.EvictFrom(pos)
	}
}

// takeDrafts adds drafts of r to the batch: those that the row e computes. It then removes all drafts from r.
func (s *Scheduler) takeDrafts(r *request, e *entry) {
	if len(r.drafts) == 0 {
		return
	}
	if n := min(int(e.tokens+e.computed)-r.kv.NumTokens()-r.placeholders, len(r.drafts)); n > 0 {
		e.draft, e.drafts = int32(len(s.batch.drafts)), int32(n)
		s.batch.drafts = append(s.batch.drafts, r.drafts[:n]...)
	}
	r.drafts = r.drafts[:0]
}

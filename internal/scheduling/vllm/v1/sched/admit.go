package sched

import (
	"slices"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// admitWaiting is the second pass over requests. It admits waiting requests from the head of the queue. It stops at the
// first request that does not fit, so no later request overtakes it. It does not preempt running requests. Requests
// that may not run yet are skipped; nextWaiting says when they are considered again.
func (s *Scheduler) admitWaiting() {
	b := s.batch
	padding := len(b.rows) > 0 && !b.prefill // the batch has only decodes
	for b.budget > 0 && len(s.running) < s.config.MaxNumSeqs {
		r := s.nextWaiting()
		if r == nil {
			break
		}
		v := skipped
		if s.ready(r) {
			v = s.admit(r, padding)
		}
		if v == doesNotFit {
			break
		}
		if v == skipped {
			r.queue.remove(r)
			s.skippedInPass = append(s.skippedInPass, r)
		}
	}
	for _, r := range slices.Backward(s.skippedInPass) {
		s.skipped.pushFront(r)
	}
	clear(s.skippedInPass)
	s.skippedInPass = s.skippedInPass[:0]
}

// nextWaiting returns the next request to admit, or nil. Skipped requests are considered before the others, unless the
// policy orders them otherwise.
func (s *Scheduler) nextWaiting() *request {
	w, k := s.waiting.head(), s.skipped.head()
	if k == nil || w != nil && s.order.precedes(w, k) {
		return w
	}
	return k
}

// ready reports whether a waiting request may run. A request added with Hold must have been released. No step in flight
// may have tokens to deliver for it, and all extensions must admit it.
func (s *Scheduler) ready(r *request) bool {
	return !r.held && (r.stale == 0 || r.dropStale) &&
		!slices.ContainsFunc(s.extensions, func(x extension) bool { return !x.admits(r) })
}

// A verdict is the result of an attempt to admit a request.
type verdict uint8

const (
	doesNotFit verdict = iota // the pass ends
	skipped                   // the request waits; the pass goes on
	runs
)

// admit admits r if it fits. If blocks were already loaded for r, it keeps these. Otherwise admit looks up the longest
// cached prefix of r, and r gets the blocks of this hit.
func (s *Scheduler) admit(r *request, padding bool) verdict {
	loaded, external := r.kv.NumComputedTokens, 0
	if loaded > 0 {
		s.hit.Clear()
	} else {
		s.cache.Lookup(r.kv, &s.hit)
		if s.connector != nil {
			n, v := s.connector.match(r)
			if v != runs {
				return v
			}
			external = n
		}
	}
	computed := loaded + s.hit.NumTokens + external
	n, padded, ok := s.waitingTokens(r, computed, padding)
	if !ok {
		return doesNotFit
	}
	a := kvcache.Alloc{
		NumNewTokens: n, Hit: &s.hit, NumExternalTokens: external,
		NumLookaheadTokens: s.config.NumLookaheadTokens, NumInFlightTokens: r.inFlight,
		FullSequenceMustFit: !s.config.AdmitChunks, NothingScheduled: len(s.running) == 0, Record: loaded == 0,
	}
	if !s.allocate(r, &a) {
		s.extensions.released(r)
		return doesNotFit
	}
	s.run(r, computed, n, padded)
	return runs
}

func (s *Scheduler) run(r *request, computed, n int, padded bool) {
	s.counters.Admitted++
	s.counters.QueueTime += time.Duration(now() - r.queued)
	r.queue.remove(r)
	s.running = append(s.running, r)
	e := entry{r: r, id: r.id, kind: KindNew, admitted: true, tokens: int32(n), computed: int32(computed)}
	if r.status == preempted {
		e.kind = KindResumed
	}
	r.status = running
	r.kv.NumComputedTokens = computed
	s.reserveTokens(r)
	if padded {
		s.pad(&e)
	}
	e.firstLen = int32(s.lengths(r))
	*s.batch.add() = e
	s.batch.budget -= int(e.tokens)
	s.extensions.scheduled(r)
}

// waitingTokens returns how many tokens a waiting request r computes in its first step. The parameter computed is the
// number of tokens before these: they were found in the cache, or are loaded. ok is false if r cannot be in this step.
//
// If the batch has only decodes and r needs one token, waitingTokens adds drafts to it, so that all rows have the same
// length. padded is true in this case.
func (s *Scheduler) waitingTokens(r *request, computed int, padding bool) (n int, padded, ok bool) {
	n = r.kv.NumTokens() - computed
	if padding && s.config.NumSpeculativeTokens > 0 && n == 1 {
		n += s.config.NumSpeculativeTokens
		if n > s.batch.budget || computed+n > s.longest {
			return 0, false, false
		}
		padded = true
	}
	if limit := s.config.LongPrefillTokenThreshold; limit > 0 {
		n = min(n, limit)
	}
	if s.config.DisableChunkedPrefill && n > s.batch.budget {
		return 0, false, false
	}
	n = s.extensions.clip(r, computed, min(n, s.batch.budget))
	if n == 0 && s.differs.encoder {
		s.extensions.released(r) // in vLLM it keeps its references to outputs while it waits
	}
	return n, padded, n > 0
}

// pad adds placeholders for drafts to the row e. It adds NumSpeculativeTokens placeholders, but at most e.tokens-1,
// because one token of the row is no draft.
func (s *Scheduler) pad(e *entry) {
	e.draft, e.drafts = int32(len(s.batch.drafts)), min(int32(s.config.NumSpeculativeTokens), e.tokens-1)
	for range e.drafts {
		s.batch.drafts = append(s.batch.drafts, -1)
	}
}

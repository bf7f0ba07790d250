package sched

import (
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// admitWaiting is the second pass: requests from the head of the queue run as long as they fit. The
// first one that does not fit ends the pass, so that others do not overtake it; no running request
// is preempted for it. Requests that cannot run yet are skipped, and come first the next time.
func (s *Scheduler) admitWaiting() {
	b := s.batch
	padding := len(b.rows) > 0 && !b.prefill // only decodes are in the batch so far
	for b.budget > 0 && len(s.running) < s.config.MaxNumSeqs {
		r := s.nextWaiting()
		if r == nil {
			break
		}
		if !s.ready(r) {
			r.in.remove(r)
			s.aside = append(s.aside, r)
			continue
		}
		switch s.admit(r, padding) {
		case skipped:
			r.in.remove(r)
			s.aside = append(s.aside, r)
			continue
		case runs:
			continue
		}
		break
	}
	for i := len(s.aside) - 1; i >= 0; i-- {
		s.skipped.pushFront(s.aside[i])
	}
	clear(s.aside)
	s.aside = s.aside[:0]
}

// nextWaiting is the head of the two queues. Skipped requests come first, unless the order of waiting
// requests says otherwise.
func (s *Scheduler) nextWaiting() *request {
	w, k := s.waiting.head(), s.skipped.head()
	if k == nil || w != nil && s.order.before(w, k) {
		return w
	}
	return k
}

// ready reports whether a waiting request may run: it is not held back, no step in flight will deliver tokens for it,
// and the extensions admit it.
func (s *Scheduler) ready(r *request) bool {
	return !r.held && (r.stale == 0 || r.dropStale) && s.extensions.admits(r)
}

// A verdict is the result of an attempt to admit a request.
type verdict uint8

const (
	doesNotFit verdict = iota // the pass ends
	skipped
	runs
)

// admit lets r run if it fits. It adopts what the cache has of r, and computes what extensions do not load. A request
// that was loaded before has its blocks already.
func (s *Scheduler) admit(r *request, padding bool) verdict {
	loaded, external := r.kv.NumComputedTokens, 0
	if loaded > 0 {
		s.hit.Clear()
	} else {
		s.cache.Lookup(r.kv, &s.hit)
		v := runs
		if external, v = s.extensions.match(r); v != runs {
			return v
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

// run puts an admitted request among the running ones and into the batch.
func (s *Scheduler) run(r *request, computed, n int, padded bool) {
	s.counters.Admitted++
	s.counters.QueueTime += time.Duration(now() - r.queued)
	r.in.remove(r)
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
	s.lengths(r)
	s.schedule(e)
	s.extensions.scheduled(r)
}

// waitingTokens is how many tokens after the computed ones a waiting request computes in
// its first step; ok is false if it cannot be in this one. A decode is padded
// to as many drafts as the other decodes have, so that all rows are alike.
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
		s.extensions.released(r) // vLLM lets it refer to outputs while it waits
	}
	return n, padded, n > 0
}

// pad gives e placeholder drafts, one fewer than its tokens at most. Where vLLM would schedule more
// drafts than tokens, New refuses the Config.
func (s *Scheduler) pad(e *entry) {
	e.draft, e.drafts = int32(len(s.batch.drafts)), min(int32(s.config.NumSpeculativeTokens), e.tokens-1)
	for range e.drafts {
		s.batch.drafts = append(s.batch.drafts, -1)
	}
}

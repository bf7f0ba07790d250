package sched

import (
	"time"

	"llmmemory/internal/vllm/v1/kvcache"
)

// admitWaiting is the second pass: requests from the head of the queue run as
// long as they fit. The first that does not stops it, so that it is not
// overtaken for ever; nobody is preempted for it. Those that cannot run at all
// yet are passed over, and are looked at first the next time.
func (s *Scheduler) admitWaiting() {
	b := s.batch
	padding := len(b.rows) > 0 && !b.prefill // only decodes are in the batch so far
	for b.budget > 0 && len(s.running) < s.config.MaxNumSeqs {
		r := s.nextWaiting()
		if r == nil {
			break
		}
		if !r.ready() {
			r.in.remove(r)
			s.aside = append(s.aside, r)
			continue
		}
		if !s.admit(r, padding) {
			break
		}
	}
	for i := len(s.aside) - 1; i >= 0; i-- {
		s.skipped.pushFront(s.aside[i])
	}
	clear(s.aside)
	s.aside = s.aside[:0]
}

// nextWaiting is the head of the two queues: requests that were passed over
// before come first, unless priorities say otherwise.
func (s *Scheduler) nextWaiting() *request {
	w, k := s.waiting.head(), s.skipped.head()
	if k == nil || w != nil && s.config.Policy == Priority && w.before(k) {
		return w
	}
	return k
}

// ready reports whether a waiting request may run: nobody holds it, and no step
// in flight will still deliver tokens for it.
func (r *request) ready() bool { return !r.held && (r.stale == 0 || r.dropStale) }

// admit lets r run if it fits.
func (s *Scheduler) admit(r *request, padding bool) bool {
	s.cache.Lookup(r.kv, &s.hit)
	hit := s.hit.NumTokens
	n, padded, ok := s.waitingTokens(r, hit, padding)
	if !ok {
		return false
	}
	a := kvcache.Alloc{
		NumNewTokens: n, Hit: &s.hit, NumLookaheadTokens: s.config.NumLookaheadTokens, NumInFlightTokens: r.inFlight,
		FullSequenceMustFit: !s.config.AdmitChunks, NothingScheduled: len(s.running) == 0,
	}
	if !s.allocate(r, &a) {
		return false
	}
	s.cache.Record(r.kv, hit)
	s.counters.Admitted++
	s.counters.QueueTime += time.Duration(now() - r.queued)
	r.in.remove(r)
	s.running = append(s.running, r)
	e := entry{r: r, id: r.id, kind: KindNew, admitted: true, tokens: int32(n), computed: int32(hit)}
	if r.status == preempted {
		e.kind = KindResumed
	}
	r.status = running
	r.kv.SetNumComputedTokens(hit)
	if padded {
		s.pad(&e)
	}
	s.lengths(r)
	s.schedule(e)
	return true
}

// waitingTokens is how many tokens after its hit a waiting request computes in
// its first step; ok is false if it cannot be in this one. A decode is padded
// to as many drafts as the other decodes have, so that all rows are alike.
func (s *Scheduler) waitingTokens(r *request, hit int, padding bool) (n int, padded, ok bool) {
	n = r.kv.NumTokens() - hit
	if padding && s.config.NumSpeculativeTokens > 0 && n == 1 {
		n += s.config.NumSpeculativeTokens
		if n > s.batch.budget || hit+n > s.longest {
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
	n = s.mamba.clip(r.kv, hit, min(n, s.batch.budget))
	n = s.leaveLookahead(r, hit, n)
	return n, padded, n > 0
}

// pad gives e drafts that stand for nothing, as many as its tokens have room
// for. Where vLLM would schedule more drafts than tokens, Config is refused.
func (s *Scheduler) pad(e *entry) {
	e.draft, e.drafts = int32(len(s.batch.drafts)), min(int32(s.config.NumSpeculativeTokens), e.tokens-1)
	for range e.drafts {
		s.batch.drafts = append(s.batch.drafts, -1)
	}
}

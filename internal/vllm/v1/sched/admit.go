package sched

import "llmmemory/internal/vllm/v1/kvcache"

// admitWaiting is the second pass: requests from the head of the queue run as
// long as they fit. The first that does not stops it, so that it is not
// overtaken for ever; nobody is preempted for it.
func (s *Scheduler) admitWaiting() {
	b := &s.batch
	padding := len(b.rows) > 0 && !b.prefill // only decodes are in the batch so far
	for b.budget > 0 && len(s.running) < s.config.MaxNumSeqs {
		r := s.queue.head()
		if r == nil {
			return
		}
		s.cache.Lookup(r.kv, &s.hit)
		hit := s.hit.NumTokens
		n, padded, ok := s.waitingTokens(r, hit, padding)
		if !ok {
			return
		}
		a := kvcache.Alloc{
			NumNewTokens: n, Hit: &s.hit, NumLookaheadTokens: s.config.NumLookaheadTokens,
			FullSequenceMustFit: !s.config.AdmitChunks, NothingScheduled: len(s.running) == 0,
		}
		if !s.allocate(r, &a) {
			return
		}
		s.cache.Record(r.kv, hit)
		s.queue.remove(r)
		s.running = append(s.running, r)
		e := entry{r: r, id: r.id, kind: KindNew, tokens: n}
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
	}
}

// waitingTokens is how many tokens behind its hit a waiting request computes in
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

// pad gives e drafts that stand for nothing.
func (s *Scheduler) pad(e *entry) {
	e.draft, e.drafts = len(s.batch.drafts), s.config.NumSpeculativeTokens
	for range s.config.NumSpeculativeTokens {
		s.batch.drafts = append(s.batch.drafts, -1)
	}
}

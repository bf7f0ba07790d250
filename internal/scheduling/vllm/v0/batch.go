package v0

import "llmmemory/internal/scheduling/serve"

// batch writes the scheduled requests to the iteration in the order in which vLLM's worker runs them, and counts their
// tokens as computed (vllm/v0/RULES.md §8).
func (s *Scheduler) batch() {
	t := &s.step
	t.it.Tokens = t.tokens
	s.now++
	for _, part := range [...][]int32{t.admitted, t.prefills, t.swappedFills} {
		for _, index := range part {
			s.prefill(s.requests.At(index))
		}
	}
	for _, part := range [...][]int32{t.decodes, t.swappedDecodes} {
		for _, index := range part {
			q := s.requests.At(index)
			q.access, q.accessed = s.now, true
			t.it.Decodes = append(t.it.Decodes, serve.Decode{ID: q.id, Context: q.Len, Seqs: 1})
			q.computed++
			q.Len++
		}
	}
	if !t.it.Empty() {
		s.manager.MarkComputed()
	}
}

func (s *Scheduler) prefill(q *request) {
	q.access, q.accessed = s.now, true
	p := serve.Prefill{ID: q.id, Start: q.computed, Tokens: q.chunk, Cached: s.saved(q), Seqs: 1}
	q.computed += q.chunk
	if q.computed == q.Len {
		p.Last, q.decoding = true, true
		q.Len++
	}
	s.step.it.Prefills = append(s.step.it.Prefills, p)
}

// saved returns how many tokens of the current chunk of q are in blocks that are already computed. The last token of a
// chunk is always computed again.
func (s *Scheduler) saved(q *request) int {
	if s.manager.prefix == nil {
		return 0
	}
	hit := len(s.manager.computedOf(&q.Seq)) * s.config.Manager.BlockSize
	return max(0, min(hit, q.computed+q.chunk-1)-q.computed)
}

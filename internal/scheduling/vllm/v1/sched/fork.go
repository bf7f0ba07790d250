package sched

import (
	"fmt"

	"llmmemory/internal/scheduling/vllm/v1/encodercache"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A Child is how a fork differs from its parent.
type Child struct {
	// Last replaces the last generated token of the child. Beam search needs this. A negative Last replaces nothing. If
	// Last is a stop token, it does not end the child.
	Last int32

	// Arrival is the arrival of the child. It should differ from the arrivals of other requests with the same priority:
	// with Config.AsVLLM, two requests with equal priority and arrival can preempt each other for ever.
	Arrival float64
}

// Fork adds a request with the tokens of another request, for parallel sampling and beam search. If the parent runs,
// one more request may run and no group is Mamba, the child also runs. The parent and the child then share blocks until
// one of them writes, and the first row of the child is a new row (KindNew). If the child cannot run at once, it waits,
// and can hit the registered blocks. No step may be in flight.
func (s *Scheduler) Fork(parent ID, c Child) (ID, error) {
	s.mu.Lock()
	defer s.unlock()
	p := s.live(parent)
	if p == nil {
		return 0, unknown(parent)
	}
	if c.Arrival != c.Arrival {
		return 0, fmt.Errorf("%w: the arrival is not a number", ErrRequest)
	}
	if s.flight.n > 0 {
		return 0, fmt.Errorf("%w: fork with %d steps in flight", ErrOrder, s.flight.n)
	}
	child := s.blank()
	kv, shares := s.cache.Fork(p.kv, p.status == running && len(s.running) < s.config.MaxNumSeqs)
	child.kv = kv
	if c.Last >= 0 {
		if err := kv.ReplaceLast(c.Last); err != nil {
			s.cache.Release(kv, kvcache.Drop, 0)
			s.discard(child)
			return 0, err
		}
	}
	child.priority, child.arrival = p.priority, c.Arrival
	child.maxTokens, child.minTokens = p.maxTokens, p.minTokens
	child.userData, child.queued = p.userData, now()
	child.loraID = p.loraID
	if p.inputs != nil {
		child.inputs, child.encodes = encodercache.NewRequest(p.inputs.Inputs()), true
	}
	child.stop = append(child.stop, p.stop...)
	s.enter(child)
	if shares {
		child.status, child.prefill, child.resend = running, p.prefill, KindNew
		s.running = append(s.running, child)
		s.reserveTokens(child)
	} else {
		s.waiting.push(child)
	}
	return child.id, nil
}

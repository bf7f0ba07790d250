package sched

import (
	"slices"

	"llmmemory/internal/invariants"
)

// Check returns an error if the cache is inconsistent or a request is not in exactly one list. A request without
// computed tokens may have blocks only if it runs or is loaded.
func (s *Scheduler) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cache.Check(); err != nil {
		return err
	}
	if len(s.running) > s.config.MaxNumSeqs {
		return invariants.Broken("%d requests run, %d may", len(s.running), s.config.MaxNumSeqs)
	}
	seen := map[ID]bool{}
	for _, r := range s.running {
		if r.status != running || seen[r.id] || s.requests.Get(uint64(r.id)) != r {
			return invariants.Broken("request %#x runs, with status %d", uint64(r.id), r.status)
		}
		seen[r.id] = true
	}
	for _, r := range s.allWaiting() {
		id := r.id
		if s.requests.Get(uint64(id)) != r || r.status == running || r.queue == nil || seen[id] {
			return invariants.Broken("request %#x waits, but should not", uint64(id))
		}
		seen[id] = true
		for g := range s.groups {
			if r.kv.NumComputedTokens == 0 && !r.transfers.loading && len(r.kv.Table(g)) > 0 {
				return invariants.Broken("request %#x waits with %d blocks", uint64(id), len(r.kv.Table(g)))
			}
		}
	}
	if _, parked := s.connector.counts(); s.requests.Len() != len(seen)+parked {
		return invariants.Broken("there are %d requests, %d in the queues and %d parked", s.requests.Len(), len(seen), parked)
	}
	for _, x := range s.extensions {
		if err := x.check(); err != nil {
			return err
		}
	}
	for _, q := range []*queue{&s.waiting, &s.skipped} {
		if !slices.IsSortedFunc(q.all(), s.order.compare) {
			return invariants.Broken("a queue is out of order")
		}
	}
	return s.checkFlight()
}

// checkStep returns an error if the step copies a block of a request that has no row in the step, except with
// Config.AsVLLM.
func (s *Scheduler) checkStep(step *Step) error {
	if !s.differs.copies {
		return nil
	}
	for _, c := range step.Copies {
		if !slices.ContainsFunc(step.Rows, func(r Row) bool { return r.ID == c.ID }) {
			return invariants.Broken("the step copies a block of request %#x, which has none of its %d rows", uint64(c.ID), len(step.Rows))
		}
	}
	return nil
}

func (s *Scheduler) checkFlight() error {
	tokens, samples := map[ID]int{}, map[ID]int{}
	for i := range s.flight.n {
		for _, e := range s.flight.batches[i].rows {
			tokens[e.id] += int(e.tokens)
			if e.samples {
				samples[e.id] += 1 + int(e.drafts)
			}
		}
	}
	for _, r := range append(s.allWaiting(), s.running...) {
		switch {
		case r.inFlight != tokens[r.id]:
			return invariants.Broken("request %#x has %d tokens in flight, the steps %d", uint64(r.id), r.inFlight, tokens[r.id])
		case r.stale < 0 || r.stale > r.inFlight:
			return invariants.Broken("request %#x has %d stale tokens of %d in flight", uint64(r.id), r.stale, r.inFlight)
		case r.placeholders < 0 || r.placeholders > samples[r.id]:
			return invariants.Broken("request %#x has %d placeholders, its rows can sample %d", uint64(r.id), r.placeholders, samples[r.id])
		case r.kv.NumComputedTokens > r.kv.NumTokens()+r.placeholders+len(r.drafts) && r.inFlight == 0:
			return invariants.Broken("request %#x has %d tokens, %d computed", uint64(r.id), r.kv.NumTokens(), r.kv.NumComputedTokens)
		}
	}
	return nil
}

package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// LoadFailed says which blocks did not get their contents, of loads that are under
// way, or of those that the oldest step in flight should have done; it comes before
// Received and before the update of that step. Requests compute again from the first such
// block on, and what the step has for them does not count. The IDs of these
// requests are appended to dst. Blocks that hold nothing of a request are skipped.
func (s *Scheduler) LoadFailed(dst []ID, blocks ...int32) ([]ID, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	invalid, err := s.invalidBlocks(blocks)
	if err != nil {
		return dst, err
	}
	for _, r := range s.allWaiting() {
		if at := s.firstInvalid(r, invalid, r.kv.NumComputedTokens()); at >= 0 {
			s.ownOnly(r, invalid)
			s.cutLoad(r, at)
			dst = append(dst, r.id)
		}
	}
	if len(invalid) > 0 && !s.config.AsVLLM {
		dst = s.voidStaleRows(dst)
	}
	again := map[int32]bool{} // blocks that a request before computes again
	for _, r := range slices.Clone(s.running) {
		e := s.oldestEntry(r)
		computed := s.notInFlight(r, e)
		if at := s.firstInvalid(r, invalid, computed); at >= 0 {
			s.failLoad(r, e, at, computed, invalid, again)
			dst = append(dst, r.id)
		}
	}
	if len(again) > 0 && s.hitsHideBlocks() {
		dst = s.failHits(dst)
	}
	return dst, nil
}

// hitsHideBlocks reports whether a request can have hit blocks that were computed
// from a block which its own table lacks: with windows, states or several groups.
func (s *Scheduler) hitsHideBlocks() bool {
	return !s.config.AsVLLM && (s.groups > 1 || s.cache.Recycles())
}

// failHits takes the blocks of all requests that have hit the cache since the oldest step
// in flight was scheduled: they may have been computed from what did not come.
func (s *Scheduler) failHits(dst []ID) []ID {
	if s.flight.n == 0 {
		return dst
	}
	since := s.flight.at(0).seq
	for _, r := range s.allWaiting() {
		if s.hasHit(r, since) && !slices.Contains(dst, r.id) {
			s.cutLoad(r, 0)
			dst = append(dst, r.id)
		}
	}
	for _, r := range slices.Clone(s.running) {
		if s.hasHit(r, since) && !slices.Contains(dst, r.id) {
			if e := s.oldestEntry(r); e != nil {
				s.void(e)
			}
			s.cache.EvictFrom(r.kv, 0)
			s.removeRunning(r)
			s.preempt(r)
			r.dropStale = true
			dst = append(dst, r.id)
		}
	}
	return dst
}

// hasHit reports whether r has blocks that it hit in step since or later.
func (s *Scheduler) hasHit(r *request, since uint64) bool {
	return r.transfers.hitIn >= since && (r.transfers.loading || r.kv.NumComputedTokens() > 0)
}

// ownOnly takes the blocks that only r has, and loads, out of invalid: nobody can
// have computed from them.
func (s *Scheduler) ownOnly(r *request, invalid map[int32]bool) {
	for g := range s.groups {
		for _, id := range r.kv.Table(g) {
			if r.transfers.loading && s.cache.Pool().Count(id) == 1 {
				delete(invalid, id)
			}
		}
	}
}

// voidStaleRows voids the rows in flight of requests that have lost their blocks since:
// they may have computed from what did not come. So may their blocks have been,
// which are cached. vLLM delivers what such rows sample.
func (s *Scheduler) voidStaleRows(dst []ID) []ID {
	before := len(dst)
	for _, r := range s.allWaiting() {
		if r.stale > 0 && !r.dropStale {
			r.dropStale = true
			dst = append(dst, r.id)
		}
	}
	if len(dst) > before || slices.ContainsFunc(s.allWaiting(), func(r *request) bool { return r.stale > 0 }) {
		s.cache.EvictSince(uint32(s.flight.at(0).seq))
	}
	return dst
}

// Affected is how many requests LoadFailed would return at most.
func (s *Scheduler) Affected(blocks ...int32) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	invalid, err := s.invalidBlocks(blocks)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range append(s.allWaiting(), s.running...) {
		hit := s.flight.n > 0 && s.hitsHideBlocks() && s.hasHit(r, s.flight.at(0).seq)
		if hit || r.stale > 0 || s.firstInvalid(r, invalid, r.kv.NumComputedTokens()) >= 0 {
			n++
		}
	}
	return n, nil
}

// invalidBlocks is the set of blocks whose loads have failed.
func (s *Scheduler) invalidBlocks(blocks []int32) (map[int32]bool, error) {
	if !s.config.Connector.Consumer {
		return nil, fmt.Errorf("%w: the scheduler's connector is no consumer", ErrOrder)
	}
	invalid := map[int32]bool{}
	for i, id := range blocks {
		if id < 1 || int(id) >= s.cache.Pool().NumBlocks() {
			return nil, fmt.Errorf("%w: blocks[%d] is %d: want 1 to %d", ErrRequest, i, id, s.cache.Pool().NumBlocks()-1)
		}
		invalid[id] = true
	}
	return invalid, nil
}

// firstInvalid is the index of the first such block that holds some of the
// first tokens of r, or -1.
func (s *Scheduler) firstInvalid(r *request, invalid map[int32]bool, tokens int) int {
	if slices.ContainsFunc(r.transfers.blocks, func(id int32) bool { return invalid[id] }) {
		return 0
	}
	first := -1
	for g, size := range s.blockSizes {
		table := r.kv.Table(g)
		at := slices.IndexFunc(table[:min((tokens+size-1)/size, len(table))], func(id int32) bool { return invalid[id] })
		if at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// oldestEntry is the row of r in the oldest step in flight, or nil.
func (s *Scheduler) oldestEntry(r *request) *entry {
	if s.flight.n > 0 {
		rows := s.flight.at(0).rows
		if i := slices.IndexFunc(rows, func(e entry) bool { return e.r == r && e.id == r.id }); i >= 0 {
			return &rows[i]
		}
	}
	return nil
}

// notInFlight is how many computed tokens of r no row in flight computes. Stale
// rows are not among the computed tokens. vLLM subtracts the row in the oldest step
// whatever became of it, and takes a negative number for none.
func (s *Scheduler) notInFlight(r *request, e *entry) int {
	computed := r.kv.NumComputedTokens()
	switch {
	case !s.config.AsVLLM:
		computed -= r.inFlight - r.stale
	case e != nil:
		computed = max(computed-int(e.tokens), 0)
	}
	return computed
}

// cutLoad shortens what r, which waits, has loaded to the blocks before block
// number at.
func (s *Scheduler) cutLoad(r *request, at int) {
	computed := max(s.cutAt(at), 0)
	r.kv.SetNumComputedTokens(computed)
	switch t := &r.transfers; {
	case t.loading:
		t.failed = true
	case computed > 0:
		s.cache.Rewind(r.kv, computed)
		s.noteUnwritten(r, computed)
	default:
		s.cache.EvictFrom(r.kv, 0)
		s.unload(r)
	}
}

// cutAt is how many tokens are whole before block number at, or -1 if nobody
// knows: with several groups, and where windows have left blocks that are needed then.
func (s *Scheduler) cutAt(at int) int {
	if s.groups > 1 || s.cache.Recycles() {
		return -1
	}
	return at * s.blockSizes[0]
}

// failLoad makes a running request compute again from block number at on. Of
// requests that share the block only the first does: in vLLM the others go on
// as if the block were whole, because the first computes it in the next step. If it
// does not get that far, they read what is not there, so here they lose their
// blocks and wait.
func (s *Scheduler) failLoad(r *request, e *entry, at, computed int, invalid, again map[int32]bool) {
	mine := s.markAgain(r, invalid, again, computed)
	if s.config.AsVLLM {
		s.failAsVLLM(r, e, mine, computed)
		return
	}
	if e != nil {
		s.void(e)
	}
	first := s.cutAt(at)
	if mine == at && first >= 0 && s.cache.Rewind(r.kv, first) {
		s.restart(r)
		return
	}
	s.cache.EvictFrom(r.kv, max(first, 0))
	s.removeRunning(r)
	s.preempt(r)
	r.dropStale = true
}

// markAgain marks the invalid blocks of r's first tokens and returns the index
// of the first that was not marked before, or -1.
func (s *Scheduler) markAgain(r *request, invalid, again map[int32]bool, tokens int) int {
	first := -1
	for g, size := range s.blockSizes {
		table := r.kv.Table(g)
		for i, id := range table[:min((tokens+size-1)/size, len(table))] {
			if invalid[id] && !again[id] {
				again[id] = true
				if first < 0 || i < first {
					first = i
				}
			}
		}
	}
	return first
}

// failAsVLLM is vLLM's answer: keys stay, and one request computes a shared
// block for all.
func (s *Scheduler) failAsVLLM(r *request, e *entry, mine, computed int) {
	if mine >= 0 {
		computed = mine * s.blockSizes[0]
	}
	if e != nil {
		s.void(e)
	}
	r.kv.SetNumComputedTokens(computed)
	s.restart(r)
}

// nobody is the ID of a row that was taken out of its step.
const nobody = ^ID(0)

// void takes a row out of a step: what is sampled for it does not count.
func (s *Scheduler) void(e *entry) {
	s.land(e.r, e)
	e.id = nobody
}

// restart makes a running request go on from its computed tokens. What steps in
// flight sample for it does not count.
func (s *Scheduler) restart(r *request) {
	r.drafts = r.drafts[:0]
	r.prefill = true
	r.placeholders, r.eligible = 0, 0
	r.stale, r.dropStale = r.inFlight, true
	s.refindInputs(r)
}

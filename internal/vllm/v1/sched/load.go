package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// Received says that the loads of requests are over: all tokens have come but
// those of LoadFailed. They run from the next step on; blocks of those that were
// aborted meanwhile are free now. If a request has no load, nothing has changed.
func (s *Scheduler) Received(ids ...ID) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		r := s.requests.Get(uint64(id))
		if r == nil || !r.transfers.loading || r.transfers.received || slices.Contains(ids[:i], id) {
			return fmt.Errorf("%w: request %#x is not being loaded", ErrRequest, uint64(id))
		}
	}
	for _, id := range ids {
		r := s.requests.Get(uint64(id))
		r.transfers.received = true
		s.transfer.loading--
		if r.status == parked {
			s.settled(r)
		}
	}
	return nil
}

// Sent says that the blocks of requests that have finished were sent, or will not be:
// they are free now. If a request does not wait for that, nothing has changed.
func (s *Scheduler) Sent(ids ...ID) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		r := s.requests.Get(uint64(id))
		if r == nil || r.status != parked || !r.transfers.send || slices.Contains(ids[:i], id) {
			return fmt.Errorf("%w: request %#x is not one that has finished and whose blocks are kept to be sent", ErrRequest, uint64(id))
		}
	}
	for _, id := range ids {
		r := s.requests.Get(uint64(id))
		r.transfers.send = false
		s.settled(r)
	}
	return nil
}

// park keeps the blocks of a request that has finished while they are being
// loaded or sent, and reports whether they are.
func (s *Scheduler) park(r *request) bool {
	if s.config.Connector.used() {
		s.cache.LeaveWindows(r.kv, max(0, r.kv.NumComputedTokens()-r.inFlight))
	}
	if t := &r.transfers; !t.send && (!t.loading || t.received) {
		return false
	}
	s.unreserve(r)
	computed := min(max(0, r.kv.NumComputedTokens()-r.inFlight-r.transfers.unsettled), r.kv.NumTokens())
	if r.transfers.loading && !r.transfers.received {
		computed = 0 // nobody knows what will come
	}
	r.kv.SetNumComputedTokens(computed)
	r.status = parked
	s.transfer.parked++
	return true
}

// settled drops a parked request for which nothing is under way any more.
func (s *Scheduler) settled(r *request) {
	if t := &r.transfers; t.send || t.loading && !t.received {
		return
	}
	s.transfer.parked--
	s.drop(r)
}

// promote lets a request run whose load is over (vLLM:
// _update_waiting_for_remote_kv): what has come can be hit from now on.
func (s *Scheduler) promote(r *request) {
	t := &r.transfers
	computed := r.kv.NumComputedTokens()
	switch {
	case t.failed && computed == 0:
		s.cache.Unadmit(r.kv)
	default:
		if err := s.cache.Store(r.kv, computed); err != nil {
			panic("sched: " + err.Error())
		}
		if computed == r.kv.NumTokens() { // the last token is computed, to be sampled from
			r.kv.SetNumComputedTokens(computed - 1)
		}
	}
	s.loadIsOver(r)
}

// LoadFailed says which blocks did not get their contents, of loads that are under
// way, or of those that the oldest step in flight should have done; it comes before
// Received and before the update of that step. Requests compute again from the first such
// block on, and what the step has for them does not count. The IDs of these
// requests are appended to dst. Blocks that hold nothing of a request are passed over.
func (s *Scheduler) LoadFailed(dst []ID, blocks ...int32) ([]ID, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	invalid := map[int32]bool{}
	for _, id := range blocks {
		if id < 1 || int(id) >= s.cache.Pool().NumBlocks() {
			return dst, fmt.Errorf("%w: block %d of a pool of %d", ErrRequest, id, s.cache.Pool().NumBlocks())
		}
		invalid[id] = true
	}
	for _, r := range s.allWaiting() {
		if at := s.firstInvalid(r, invalid, r.kv.NumComputedTokens()); at >= 0 {
			s.ownOnly(r, invalid)
			s.cutLoad(r, at)
			dst = append(dst, r.id)
		}
	}
	if len(invalid) > 0 && !s.config.AsVLLM {
		dst = s.dropStale(dst)
	}
	again := map[int32]bool{} // blocks that a request before computes again
	for _, r := range slices.Clone(s.running) {
		e := s.oldestEntry(r)
		computed := r.kv.NumComputedTokens()
		if e != nil {
			computed -= int(e.tokens)
		}
		if at := s.firstInvalid(r, invalid, computed); at >= 0 {
			s.failLoad(r, e, at, computed, invalid, again)
			dst = append(dst, r.id)
		}
	}
	return dst, nil
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

// dropStale voids the rows in flight of requests that have lost their blocks since:
// they may have computed from what did not come. So may their blocks have been,
// which are cached. vLLM delivers what such rows sample.
func (s *Scheduler) dropStale(dst []ID) []ID {
	before := len(dst)
	for _, r := range s.allWaiting() {
		if r.stale > 0 && !r.dropStale {
			r.dropStale = true
			dst = append(dst, r.id)
		}
	}
	if len(dst) > before || slices.ContainsFunc(s.allWaiting(), func(r *request) bool { return r.stale > 0 }) {
		s.cache.ForgetSince(uint32(s.flight.at(0).seq))
	}
	return dst
}

// Affected is how many requests LoadFailed would return at most.
func (s *Scheduler) Affected(blocks ...int32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	invalid, n := map[int32]bool{}, 0
	for _, id := range blocks {
		invalid[id] = true
	}
	for _, r := range append(s.allWaiting(), s.running...) {
		if r.stale > 0 || s.firstInvalid(r, invalid, r.kv.NumComputedTokens()) >= 0 {
			n++
		}
	}
	return n
}

// noteLoad remembers what a row in flight loads.
func (s *Scheduler) noteLoad(r *request, external int) {
	t := &r.transfers
	t.unsettled = external
	if external > 0 && s.cache.Recycles() {
		for g := range s.groups {
			t.blocks = append(t.blocks, r.kv.Table(g)...)
		}
	}
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
	default:
		s.cache.ForgetFrom(r.kv, 0)
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

// unload takes back what r, which waits, has loaded.
func (s *Scheduler) unload(r *request) {
	s.unreserve(r)
	s.cache.Unadmit(r.kv)
	s.loadIsOver(r)
}

// loadIsOver lets r wait as others do.
func (s *Scheduler) loadIsOver(r *request) {
	t := &r.transfers
	t.loading, t.received, t.failed = false, false, false
	s.forgetMatch(r)
	r.status = waiting
	if r.kv.NumPreemptions() > 0 {
		r.status = preempted
	}
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
	s.cache.ForgetFrom(r.kv, max(first, 0))
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

// freeLoaded takes the blocks of a waiting request whose load is over, if nothing
// runs and they stand in each other's way, and reports whether it did. vLLM
// would wait for ever.
func (s *Scheduler) freeLoaded() bool {
	if len(s.running) > 0 || s.flight.n > 0 || s.pause != PauseNone || s.transfer.loading > 0 || s.transfer.parked > 0 {
		return false
	}
	return s.unloadLast()
}

// unloadLast takes the blocks of one waiting request whose load is over, if
// there is one.
func (s *Scheduler) unloadLast() bool {
	for _, r := range slices.Backward(s.transfer.prefills) {
		if t := &r.transfers; r.status != running && (t.received || !t.loading && r.kv.NumComputedTokens() > 0) {
			s.unload(r)
			return true
		}
	}
	return false
}

// checkTransfers counts loads and reservations anew.
func (s *Scheduler) checkTransfers() error {
	loading, reserving := 0, 0
	for _, r := range append(s.allWaiting(), s.running...) {
		t := &r.transfers
		if t.loading && !t.received {
			loading++
		}
		if t.reserving {
			reserving++
		}
		switch {
		case t.loading && (r.status == running || r.kv.NumComputedTokens() == 0 && !t.failed):
			return fmt.Errorf("%w: request %#x is being loaded, with status %d and %d tokens", ErrBroken, uint64(r.id), r.status, r.kv.NumComputedTokens())
		case t.reserving != slices.Contains(s.transfer.prefills, r):
			return fmt.Errorf("%w: request %#x reserves blocks: %v, and is not in the list", ErrBroken, uint64(r.id), t.reserving)
		case r.status != running && t.unsettled > 0:
			return fmt.Errorf("%w: request %#x waits with %d unsettled tokens", ErrBroken, uint64(r.id), t.unsettled)
		}
	}
	if loading > s.transfer.loading || reserving != len(s.transfer.prefills) {
		return fmt.Errorf("%w: %d requests are being loaded of %d, %d reserve blocks of %d",
			ErrBroken, loading, s.transfer.loading, reserving, len(s.transfer.prefills))
	}
	return nil
}

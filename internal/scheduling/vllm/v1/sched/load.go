package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Received reports that the loads of requests are over: all tokens have come except those of
// LoadFailed. The requests can run from the next step on; blocks of aborted ones are free now. If
// one of them is not being loaded, Received returns an error and changes nothing.
func (x Transfers) Received(ids ...ID) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	loading := func(r *request) bool { return r.transfers.loading && !r.transfers.received }
	return s.each(ids, loading, "is not being loaded", func(r *request) {
		r.transfers.received = true
		s.transfer.loading--
		if r.status == parked {
			s.settled(r)
		}
	})
}

// each applies a change to requests. If one of them does not exist, does not allow it, or is
// given twice, each changes nothing and returns an error that contains not.
func (s *Scheduler) each(ids []ID, allows func(*request) bool, not string, change func(*request)) error {
	for i, id := range ids {
		if r := s.requests.Get(uint64(id)); r == nil || !allows(r) || slices.Contains(ids[:i], id) {
			return fmt.Errorf("%w: request %#x %s", ErrRequest, uint64(id), not)
		}
	}
	for _, id := range ids {
		change(s.requests.Get(uint64(id)))
	}
	return nil
}

// Sent reports that the blocks of finished requests were sent, or will not be; they are free now.
// If one of them does not wait for that, Sent returns an error and changes nothing.
func (x Transfers) Sent(ids ...ID) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	sending := func(r *request) bool { return r.status == parked && r.transfers.send }
	return s.each(ids, sending, "is not one that has finished and whose blocks are kept to be sent", func(r *request) {
		r.transfers.send = false
		s.settled(r)
	})
}

// park keeps the blocks of a finished request while they are being loaded or sent, and reports
// whether they are.
func (s *Scheduler) park(r *request) bool {
	if s.config.Connector.used() {
		s.cache.Transfers.LeaveWindows(r.kv, max(0, r.kv.NumComputedTokens-r.inFlight))
	}
	if t := &r.transfers; !t.send && (!t.loading || t.received) {
		return false
	}
	s.unreserve(r)
	computed := min(max(0, r.kv.NumComputedTokens-r.inFlight-r.transfers.unsettled), r.kv.NumTokens())
	if r.transfers.loading && !r.transfers.received {
		computed = 0 // it is not known what will come
	}
	r.kv.NumComputedTokens = computed
	r.status = parked
	s.transfer.parked++
	return true
}

// settled drops a parked request when no transfer of it is under way.
func (s *Scheduler) settled(r *request) {
	if t := &r.transfers; t.send || t.loading && !t.received {
		return
	}
	s.transfer.parked--
	s.drop(r)
}

// promote lets a request whose load is over run (vLLM: _update_waiting_for_remote_kv). What was
// loaded can be hit from now on.
func (s *Scheduler) promote(r *request) {
	t := &r.transfers
	computed := r.kv.NumComputedTokens
	switch {
	case t.failed && !s.keepsLoad(r, computed):
		if s.differs.loads {
			s.unreserve(r) // vLLM keeps the reservation, and the request can wait for itself
		}
		s.cache.Release(r.kv, kvcache.UndoAdmit, 0)
	default:
		if err := s.cache.Store(r.kv, computed); err != nil {
			panic("sched: " + err.Error())
		}
		if t.failed {
			s.noteUnwritten(r, computed)
		}
		if computed == r.kv.NumTokens() { // the last token is computed, to be sampled from
			r.kv.NumComputedTokens = computed - 1
		}
	}
	s.loadIsOver(r)
}

// unload frees what r, which waits, has loaded.
func (s *Scheduler) unload(r *request) {
	s.unreserve(r)
	s.cache.Release(r.kv, kvcache.UndoAdmit, 0)
	s.loadIsOver(r)
}

// loadIsOver makes r an ordinary waiting request.
func (s *Scheduler) loadIsOver(r *request) {
	t := &r.transfers
	t.loading, t.received, t.failed = false, false, false
	s.forgetMatch(r)
	r.status = waiting
	if r.kv.NumPreemptions() > 0 {
		r.status = preempted
	}
}

// freeLoaded takes the blocks of one waiting request whose load is over if nothing can run without
// them, and reports whether it did. vLLM would wait for ever.
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
		if t := &r.transfers; r.status != running && (t.received || !t.loading && r.kv.NumComputedTokens > 0) {
			s.unload(r)
			return true
		}
	}
	return false
}

// hasHit reports whether r has blocks that it hit in step since or later.
func (s *Scheduler) hasHit(r *request, since uint64) bool {
	return r.transfers.hitIn >= since && (r.transfers.loading || r.kv.NumComputedTokens > 0)
}

// checkTransfers counts loads and reservations again and compares.
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
		case t.loading && (r.status == running || r.kv.NumComputedTokens == 0 && !t.failed):
			return invariants.Broken("request %#x is being loaded, with status %d and %d tokens", uint64(r.id), r.status, r.kv.NumComputedTokens)
		case t.reserving != slices.Contains(s.transfer.prefills, r):
			return invariants.Broken("request %#x reserves blocks: %v, and is not in the list", uint64(r.id), t.reserving)
		case r.status != running && t.unsettled > 0:
			return invariants.Broken("request %#x waits with %d unsettled tokens", uint64(r.id), t.unsettled)
		}
	}
	if loading > s.transfer.loading || reserving != len(s.transfer.prefills) {
		return invariants.Broken("%d requests are being loaded of %d, %d reserve blocks of %d", loading, s.transfer.loading, reserving, len(s.transfer.prefills))
	}
	return nil
}

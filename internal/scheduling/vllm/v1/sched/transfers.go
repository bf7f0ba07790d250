package sched

import (
	"fmt"
	"slices"
)

// Transfers has the methods that the host of a connector calls. Each method is atomic.
type Transfers struct{ s *Scheduler }

// SetMatch sets what the connector can load for a request when it is next admitted without blocks. If the request has
// blocks, SetMatch changes nothing.
func (x Transfers) SetMatch(id ID, m Match) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	r := s.live(id)
	switch {
	case r == nil:
		return unknown(id)
	case !s.config.Connector.Consumer:
		return fmt.Errorf("%w: the scheduler's connector is no consumer", ErrOrder)
	case m.NumTokens < 0 || m.NumTokens > r.kv.NumTokens():
		return fmt.Errorf("%w: %d tokens to load of %d", ErrRequest, m.NumTokens, r.kv.NumTokens())
	}
	if r.status != running && r.kv.NumComputedTokens == 0 {
		r.transfers.match, r.transfers.unanswered = m, false
	}
	return nil
}

// Received reports that the loads for the requests are over: all their blocks were loaded, except those of LoadFailed.
// The requests can run from the next step on; the blocks of aborted requests become free. If one of the requests is
// not being loaded, Received returns an error and changes nothing.
func (x Transfers) Received(ids ...ID) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	loading := func(r *request) bool { return r.transfers.loading && !r.transfers.received }
	return s.changeAll(ids, loading, "is not being loaded", func(r *request) {
		r.transfers.received = true
		s.connector.loading--
		if r.status == parked {
			s.connector.settled(r)
		}
	})
}

// Sent reports that the blocks of finished requests were sent, or will not be sent, and frees them. If one of the
// requests does not have blocks to send, Sent returns an error and changes nothing.
func (x Transfers) Sent(ids ...ID) error {
	s := x.s
	s.mu.Lock()
	defer s.unlock()
	sending := func(r *request) bool { return r.status == parked && r.transfers.send }
	return s.changeAll(ids, sending, "is not one that has finished and whose blocks are kept to be sent", func(r *request) {
		r.transfers.send = false
		s.connector.settled(r)
	})
}

// changeAll calls change for each of the requests. If an id is unknown or occurs twice, or if canChange returns false
// for one of the requests, changeAll changes nothing. It then returns an error that ends with the id, followed by the
// text in parameter problem.
func (s *Scheduler) changeAll(ids []ID, canChange func(*request) bool, problem string, change func(*request)) error {
	for i, id := range ids {
		if r := s.requests.Get(uint64(id)); r == nil || !canChange(r) || slices.Contains(ids[:i], id) {
			return fmt.Errorf("%w: request %#x %s", ErrRequest, uint64(id), problem)
		}
	}
	for _, id := range ids {
		change(s.requests.Get(uint64(id)))
	}
	return nil
}

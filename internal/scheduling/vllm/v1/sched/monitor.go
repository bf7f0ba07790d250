package sched

import (
	"fmt"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Monitor reads the state of a Scheduler, for operators, routers and tests. Like those of the
// Scheduler, each of its methods is atomic.
type Monitor struct{ s *Scheduler }

func (m Monitor) lock() *Scheduler {
	m.s.mu.Lock()
	return m.s
}

// Load is how full a scheduler is.
type Load struct {
	Running, Waiting   int // requests
	Loading, Parked    int // requests: waiting for keys and values; finished, with blocks in transfer
	InFlight           int // steps
	FreeBlocks, Blocks int // Blocks without the null block
	Deferred           int // blocks of requests that are gone, kept for steps in flight
	Encoder            EncoderUsage
}

// Load returns the present figures.
func (m Monitor) Load() Load {
	s := m.lock()
	defer s.mu.Unlock()
	p := s.cache.Pool
	var encoder EncoderUsage
	if s.encoder != nil {
		encoder.Taken, encoder.Referenced = s.encoder.cache.Usage()
	}
	loading, parked := s.connector.counts()
	return Load{
		Encoder: encoder,
		Running: len(s.running), Waiting: s.requests.Len() - len(s.running) - parked,
		Loading: loading, Parked: parked, InFlight: s.flight.n,
		FreeBlocks: p.NumFree(), Blocks: p.NumBlocks() - 1, Deferred: s.cache.NumDeferred(),
	}
}

// Counters are sums since the last TakeCounters.
type Counters struct {
	Preemptions            int
	Tokens                 int           // sampled, without those after a stop
	Drafts, DraftsAccepted int           // verified; and of these, accepted
	Admitted               int           // requests, those that were preempted included
	QueueTime              time.Duration // their time in the queue, summed

	// Lookups outside (RULES.md §19), of requests admitted for the first time and
	// of those that had been preempted.
	External, ExternalPreempted ExternalCounters
}

// ExternalCounters count lookups by a connector. Queries are tokens that were not hit in the cache,
// Hits those of them that are loaded.
type ExternalCounters struct{ Requests, Queries, Hits int }

// TakeCounters returns the counters and sets them to 0.
func (m Monitor) TakeCounters() Counters {
	s := m.lock()
	defer s.mu.Unlock()
	c := s.counters
	s.counters = Counters{}
	return c
}

// TakeEvents moves the events of the cache to dst.
func (m Monitor) TakeEvents(dst *pool.Events) {
	s := m.lock()
	defer s.mu.Unlock()
	s.cache.Pool.TakeEvents(dst)
}

// TakeStats returns the statistics of the cache since the last call.
func (m Monitor) TakeStats() kvcache.Stats {
	s := m.lock()
	defer s.mu.Unlock()
	stats := s.cache.Stats
	s.cache.Stats = kvcache.Stats{}
	return stats
}

// Live reports whether an ID names a request that has not finished.
func (m Monitor) Live(id ID) bool {
	s := m.lock()
	defer s.mu.Unlock()
	return s.live(id) != nil
}

// Running appends the running requests to dst, in the order of admission.
func (m Monitor) Running(dst []ID) []ID {
	s := m.lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		dst = append(dst, r.id)
	}
	return dst
}

// Waiting appends the waiting requests to dst, in the order in which they will be admitted.
func (m Monitor) Waiting(dst []ID) []ID {
	s := m.lock()
	defer s.mu.Unlock()
	for _, r := range s.allWaiting() {
		dst = append(dst, r.id)
	}
	return dst
}

// NumComputedTokens returns how many tokens of a request are computed, and how many it
// has.
func (m Monitor) NumComputedTokens(id ID) (computed, tokens int, err error) {
	s := m.lock()
	defer s.mu.Unlock()
	r := s.requests.Get(uint64(id)) // parked ones, too
	if r == nil {
		return 0, 0, unknown(id)
	}
	return r.kv.NumComputedTokens, r.kv.NumTokens(), nil
}

// Table appends the block table of a request in a group to dst. Of a request that
// has finished and whose blocks are still being sent or loaded, it is the part
// with computed tokens.
func (m Monitor) Table(dst []int32, id ID, group int) ([]int32, error) {
	s := m.lock()
	defer s.mu.Unlock()
	r := s.requests.Get(uint64(id)) // parked ones, too
	if r == nil {
		return dst, unknown(id)
	}
	if group < 0 || group >= s.groups {
		return dst, fmt.Errorf("%w: group %d of %d", ErrRequest, group, s.groups)
	}
	if r.status == parked {
		return append(dst, s.computedTable(r, group)...), nil
	}
	return append(dst, r.kv.Table(group)...), nil
}

// computedTable is the part of the block table of a group that holds computed tokens; the states of a Mamba group are
// not counted in tokens.
func (s *Scheduler) computedTable(r *request, group int) []int32 {
	table := r.kv.Table(group)
	if s.cache.Config.Groups[group].Kind == kvcache.Mamba {
		return table
	}
	return blocksOf(table, s.blockSizes[group], 0, r.kv.NumComputedTokens)
}

// Inspect calls f with the cache under the lock. f must not call the scheduler
// and must not keep what it gets.
func (m Monitor) Inspect(f func(*kvcache.Cache)) {
	s := m.lock()
	defer s.mu.Unlock()
	f(s.cache)
}

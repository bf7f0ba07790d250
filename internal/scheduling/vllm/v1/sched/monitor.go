package sched

import (
	"fmt"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Monitor reads the state of a Scheduler. Each of its methods is atomic.
type Monitor struct{ s *Scheduler }

func (m Monitor) lock() *Scheduler {
	m.s.mu.Lock()
	return m.s
}

// Load is the present load of a scheduler.
type Load struct {
	Running, Waiting   int // requests
	Loading, Parked    int // requests that wait for keys and values; finished requests with blocks in transfer
	InFlight           int // steps
	FreeBlocks, Blocks int // the null block left out
	Deferred           int // references to blocks that are dropped when a step in flight is over
	Encoder            EncoderUsage
}

// Load returns the present load.
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
	Drafts, DraftsAccepted int           // verified drafts; those of them that were accepted
	Admitted               int           // admissions of requests
	QueueTime              time.Duration // the time that these requests had waited, summed

	// External counts lookups by a connector for the first admission of a request, ExternalPreempted for later ones
	// (RULES.md §19).
	External, ExternalPreempted ExternalCounters
}

// ExternalCounters count what requests look up in a connector. Requests is the number of lookups. Queries is the number
// of the requests' tokens that are not hit in the cache. Hits is the number of tokens among Queries that the connector
// loads.
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

// Live reports whether id names a request that has not finished.
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

// Waiting appends the waiting requests to dst, in the order in which Schedule considers them for admission.
func (m Monitor) Waiting(dst []ID) []ID {
	s := m.lock()
	defer s.mu.Unlock()
	for _, r := range s.allWaiting() {
		dst = append(dst, r.id)
	}
	return dst
}

// NumComputedTokens returns how many tokens of a request are computed, and how many tokens it has.
func (m Monitor) NumComputedTokens(id ID) (computed, tokens int, err error) {
	s := m.lock()
	defer s.mu.Unlock()
	r := s.requests.Get(uint64(id)) // parked ones, too
	if r == nil {
		return 0, 0, unknown(id)
	}
	return r.kv.NumComputedTokens, r.kv.NumTokens(), nil
}

// Table appends to dst the block table of a request in a group. If the request has finished and its blocks are still
// in transfer, Table appends only blocks with computed tokens, unless the group is Mamba.
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
	table := r.kv.Table(group)
	if r.status == parked && s.cache.Config.Groups[group].Kind != kvcache.Mamba {
		table = blocksOf(table, s.blockSizes[group], 0, r.kv.NumComputedTokens)
	}
	return append(dst, table...), nil
}

// Inspect calls f with the cache. f must not call the scheduler, nor use the cache after it returns.
func (m Monitor) Inspect(f func(*kvcache.Cache)) {
	s := m.lock()
	defer s.mu.Unlock()
	f(s.cache)
}

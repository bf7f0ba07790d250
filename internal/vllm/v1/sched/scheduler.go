package sched

import (
	"fmt"
	"sync"
	"time"

	"llmmemory/internal/invariants"
	"llmmemory/internal/vllm/v1/handle"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/pool"
)

// A Scheduler runs requests over a cache of its own.
type Scheduler struct {
	mu     sync.Mutex // held by every exported method
	config Config
	cache  *kvcache.Cache
	mamba  mambaSplit

	longest  int // tokens of a sequence
	requests handle.Table[request]
	spare    []*request
	added    uint64

	running   []*request // in the order of admission
	waiting   queue
	skipped   queue      // waiting ones that could not run when it was their turn
	aside     []*request // those of this step
	pause     Pause
	preempted []ID // since the last step
	finished  []ID
	transfer  transfer
	zero      zeroing
	encoder   encoder
	loras     loras

	counters Counters

	groups     int
	blockSizes []int  // by group
	steps      uint64 // scheduled since the beginning, empty ones included
	flight     flight
	batch      *batch // that is being scheduled
	hit        kvcache.Hit
}

// Pause is what a scheduler does not do.
type Pause uint8

const (
	PauseNone Pause = iota
	PauseNew        // admits no request
	PauseAll        // schedules nothing
)

// New makes a scheduler with its cache.
func New(config Config) (*Scheduler, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	config.Cache.RecordNewBlocks, config.Cache.HandOffTails = config.ZeroNewBlocks, config.Connector.Producer
	config.Cache.Exact = !config.AsVLLM
	config.Cache.CopyWritten = !config.AsVLLM
	cache, err := kvcache.New(config.Cache)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := &Scheduler{config: config, cache: cache, longest: config.Cache.MaxModelLen}
	s.zero.held = map[int32]bool{}
	s.waiting.init(config.Policy)
	s.skipped.init(config.Policy)
	s.mamba.init(&s.config, cache)
	s.encoder.init(&s.config)
	s.loras.most = config.MaxLoRAs
	if config.AsVLLM && config.NumSpeculativeTokens > 0 && s.mamba.clipsDecodes() {
		return nil, fmt.Errorf("%w: a Mamba group in align mode clips the padding of a decode, and vLLM then schedules more drafts than tokens", ErrConfig)
	}
	if config.DisableChunkedMMInput && s.mamba.block > 0 && s.encoder.ahead > 0 {
		return nil, fmt.Errorf("%w: blocks of a Mamba group divide prompts where items may not be divided, and a draft model reads ahead: some items would wait for ever", ErrConfig)
	}
	s.groups = len(cache.Config().Groups)
	for _, g := range cache.Config().Groups {
		s.blockSizes = append(s.blockSizes, g.BlockSize)
	}
	s.flight.init(s.config.MaxConcurrentBatches)
	return s, nil
}

// SetPause sets what the next steps leave out (vLLM's PauseState): PauseNew admits no waiting
// request, PauseAll schedules nothing, PauseNone lifts it (vllm/v1/RULES.md §14.3).
func (s *Scheduler) SetPause(p Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = p
}

// Reset forgets all cached prefixes, and reports whether that was possible: no
// request may have blocks. With preempt it takes the blocks of all running
// requests away before, from the last one to the first, so they stay in order.
// Blocks that are being loaded or sent, or are kept for a step in flight, stay in
// use: then nothing has changed.
func (s *Scheduler) Reset(preempt bool) (bool, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdsBlocks() {
		return false, nil
	}
	for preempt && len(s.running) > 0 {
		last := len(s.running) - 1
		r := s.running[last]
		s.running = s.running[:last]
		s.preempt(r)
		r.dropStale = true // it may run again before the steps in flight are updated
	}
	ok := s.cache.Reset()
	if preempt && !ok {
		return false, fmt.Errorf("%w: blocks are in use although no request runs", ErrOrder)
	}
	return ok, nil
}

// preempt sends r, which is in running no more, back to the front of the queue
// without its blocks (vllm/v1/RULES.md §7).
func (s *Scheduler) preempt(r *request) {
	s.free(r)
	s.freeInputs(r)
	s.cache.Preempt(r.kv)
	s.zero.loose = true
	s.forgetMatch(r)
	r.status = preempted
	r.drafts = r.drafts[:0]
	r.resend = KindRunning
	r.dropStale = s.config.Connector.requiresKVDelivery() || r.dropStale && r.stale > 0
	r.stale, r.placeholders = r.inFlight, 0
	s.waiting.pushFront(r)
	s.preempted = append(s.preempted, r.id)
	s.counters.Preemptions++
	r.queued = now()
}

// TakeEvents moves the events of the cache to dst.
func (s *Scheduler) TakeEvents(dst *pool.Events) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.TakeEvents(dst)
}

// TakeStats returns the statistics of the cache since the last call.
func (s *Scheduler) TakeStats() kvcache.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache.TakeStats()
}

// Counters are sums since they were taken last.
type Counters struct {
	Preemptions            int
	Tokens                 int           // sampled, that count
	Drafts, DraftsAccepted int           // verified, and sampled as well
	Admitted               int           // requests, those that were preempted included
	QueueTime              time.Duration // that these had waited, all together

	// Lookups outside (RULES.md §19), of requests admitted for the first time and
	// of those that had been preempted.
	External, ExternalPreempted ExternalCounters
}

// ExternalCounters are tokens but for Requests: those not hit in the cache, and
// those of them that are loaded.
type ExternalCounters struct{ Requests, Queries, Hits int }

// TakeCounters returns the counters and starts anew.
func (s *Scheduler) TakeCounters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters
	s.counters = Counters{}
	return c
}

var started = time.Now()

// now is a clock that never goes back, in ns.
func now() int64 { return int64(time.Since(started)) }

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
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.cache.Pool()
	var encoder EncoderUsage
	if c := s.encoder.cache; c != nil {
		encoder.Taken, encoder.Referenced = c.Usage()
	}
	return Load{
		Encoder: encoder,
		Running: len(s.running), Waiting: s.requests.Len() - len(s.running) - s.transfer.parked,
		Loading: s.transfer.loading, Parked: s.transfer.parked, InFlight: s.flight.n,
		FreeBlocks: p.NumFree(), Blocks: p.NumBlocks() - 1, Deferred: s.cache.NumDeferred(),
	}
}

// Running appends the running requests to dst, in the order of admission.
func (s *Scheduler) Running(dst []ID) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		dst = append(dst, r.id)
	}
	return dst
}

// Waiting appends the waiting requests to dst, in the order of admission to be.
func (s *Scheduler) Waiting(dst []ID) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.allWaiting() {
		dst = append(dst, r.id)
	}
	return dst
}

func (s *Scheduler) allWaiting() []*request {
	all := s.waiting.appendTo(s.skipped.appendTo(nil))
	if s.config.Policy == Priority {
		sortByImportance(all)
	}
	return all
}

// Computed returns how many tokens of a request are computed, and how many it
// has.
func (s *Scheduler) NumComputedTokens(id ID) (computed, tokens int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests.Get(uint64(id)) // parked ones, too
	if r == nil {
		return 0, 0, unknown(id)
	}
	return r.kv.NumComputedTokens(), r.kv.NumTokens(), nil
}

// Table appends the block table of a request in a group to dst. Of a request that
// has finished and whose blocks are still being sent or loaded, it is the part
// with computed tokens.
func (s *Scheduler) Table(dst []int32, id ID, group int) ([]int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests.Get(uint64(id)) // parked ones, too
	if r == nil {
		return dst, unknown(id)
	}
	if group < 0 || group >= s.groups {
		return dst, fmt.Errorf("%w: group %d of %d", ErrRequest, group, s.groups)
	}
	if r.status == parked {
		return append(dst, s.cache.ComputedTable(r.kv, group)...), nil
	}
	return append(dst, r.kv.Table(group)...), nil
}

func unknown(id ID) error {
	return fmt.Errorf("%w: no request has the id %#x, or it has finished", ErrRequest, uint64(id))
}

// Inspect calls f with the cache under the lock. f must not call the scheduler
// and must not keep what it gets.
func (s *Scheduler) Inspect(f func(*kvcache.Cache)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.cache)
}

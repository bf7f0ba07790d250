package sched

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/vllm/v1/encodercache"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A Scheduler decides what a model computes in each step.
type Scheduler struct {
	Monitor   Monitor
	Transfers Transfers

	mu         sync.Mutex // held by every exported method
	config     Config
	cache      *kvcache.Cache
	differs    differences
	order      *order // of waiting requests
	extensions extensions
	connector  *connector // one of the extensions, or nil
	encoder    *encoder   // one of the extensions, or nil
	zero       *zeroing   // one of the extensions, or nil

	longest  int // MaxModelLen
	requests reqtable.Handles[request]
	spare    []*request
	added    uint64

	running       []*request // in the order of admission
	waiting       queue
	skipped       queue      // waiting requests that were skipped
	skippedInPass []*request // waiting requests that were skipped in this pass
	pause         Pause
	preempted     []ID // since the last step
	finished      []ID // since the last step

	counters Counters

	groups     int
	blockSizes []int  // by group
	steps      uint64 // number of steps so far, empty ones included
	flight     flight
	batch      *batch // the step that is being scheduled
	hit        kvcache.Hit
	pending    kvcache.Pending
}

// Pause says what a scheduler does not schedule.
type Pause uint8

const (
	PauseNone Pause = iota
	PauseNew        // it admits no request
	PauseAll        // it schedules nothing
)

// New makes a scheduler and its cache.
func New(config Config) (*Scheduler, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	config.Cache.RecordNewBlocks, config.Cache.HandOffTails = config.ZeroNewBlocks, config.Connector.Producer
	d := !config.AsVLLM
	differs := differences{d, d, d, d, d, d, d, d, d, d, d}
	config.Cache.Exact, config.Cache.CopyWritten = differs.hits, differs.hits
	cache, err := kvcache.New(config.Cache)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := &Scheduler{config: config, cache: cache, longest: config.Cache.MaxModelLen, differs: differs}
	s.Monitor, s.Transfers = Monitor{s}, Transfers{s}
	s.order = &orders[config.Policy]
	s.waiting.order, s.skipped.order = s.order, s.order
	if err := s.extend(); err != nil {
		return nil, err
	}
	s.groups = len(cache.Config.Groups)
	for _, g := range cache.Config.Groups {
		s.blockSizes = append(s.blockSizes, g.BlockSize)
	}
	for range s.config.MaxConcurrentBatches {
		s.flight.batches = append(s.flight.batches, &batch{})
	}
	return s, nil
}

func (s *Scheduler) extend() error {
	c := &s.config
	if c.Connector.used() {
		s.connector = &connector{s: s}
		s.extensions = append(s.extensions, s.connector)
	}
	if m := newMambaSplit(c, s.cache); m.block > 0 {
		switch {
		case c.AsVLLM && c.NumSpeculativeTokens > 0 && m.clipsDecodes():
			return fmt.Errorf("%w: a Mamba group in align mode clips the padding of a decode, "+
				"and vLLM then schedules more drafts than tokens", ErrConfig)
		case c.DisableChunkedMMInput && c.readsAhead():
			return fmt.Errorf("%w: DisableChunkedMMInput with a Mamba group in align mode and a draft model: "+
				"chunks end at blocks of the group, so some items would wait for ever", ErrConfig)
		}
		s.extensions = append(s.extensions, m)
	}
	if c.EncoderCacheSize > 0 {
		s.encoder = &encoder{s: s, cache: encodercache.New(c.EncoderCacheSize)}
		if c.readsAhead() {
			s.encoder.lookahead = 1
		}
		s.extensions = append(s.extensions, s.encoder)
	}
	if c.MaxLoRAs > 0 {
		s.extensions = append(s.extensions, &loras{s: s, limit: c.MaxLoRAs})
	}
	if c.ZeroNewBlocks {
		s.zero = &zeroing{s: s, held: map[int32]bool{}}
		s.extensions = append(s.extensions, s.zero)
	}
	return nil
}

// unlock must be deferred by exported methods that change requests or blocks.
func (s *Scheduler) unlock() {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	s.mu.Unlock()
}

// SetPause sets what the next steps do not schedule (vLLM's PauseState; vllm/v1/RULES.md §14.3).
func (s *Scheduler) SetPause(p Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = p
}

// Reset removes all cached prefixes if no request has blocks, and reports whether it did. If preempt is true, Reset
// first preempts all running requests; they wait in the order in which they ran. If blocks are in transfer, are loaded
// for a request that waits, or are or would be kept for a step in flight, Reset changes nothing.
func (s *Scheduler) Reset(preempt bool) (bool, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.connector != nil && s.connector.holdsBlocks() {
		return false, nil
	}
	for preempt && len(s.running) > 0 {
		last := len(s.running) - 1
		r := s.running[last]
		s.running = s.running[:last]
		s.preempt(r)
		r.dropStale = true // so that the request may run before the steps in flight are updated
	}
	ok := s.cache.Reset()
	if preempt && !ok {
		return false, fmt.Errorf("%w: blocks are in use although no request runs", ErrOrder)
	}
	return ok, nil
}

// preempt frees the blocks of r, which the caller has removed from running, and puts r at the front of the queue
// (vllm/v1/RULES.md §7).
func (s *Scheduler) preempt(r *request) {
	s.release(r, kvcache.Preempt)
	s.extensions.released(r)
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

// release frees the blocks of r. If a connector could load into these blocks while a step in flight may still write to
// them, they are freed after the newest step in flight.
func (s *Scheduler) release(r *request, reason kvcache.Release) {
	s.connector.lost(r, reason)
	step := uint64(0)
	if r.inFlight > 0 && s.defersFrees() {
		step = s.flight.batches[s.flight.n-1].seq
	}
	s.cache.Release(r.kv, reason, step)
}

func (s *Scheduler) defersFrees() bool {
	return s.config.Connector.Consumer && s.config.MaxConcurrentBatches > 1
}

var started = time.Now()

// now is a monotonic clock, in ns.
func now() int64 { return int64(time.Since(started)) }

func (s *Scheduler) allWaiting() []*request {
	all := slices.Concat(s.skipped.all(), s.waiting.all())
	slices.SortStableFunc(all, s.order.compare)
	return all
}

func unknown(id ID) error {
	return fmt.Errorf("%w: no request has the id %#x, or it has finished", ErrRequest, uint64(id))
}

package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A Connector moves keys and values between this cache and other machines or memory (vLLM's
// KVTransferConfig). There are no callbacks: the host says what can be loaded (Spec.External,
// SetMatch), a step says what to load (Row.NumExternalTokens, Step.Loads), and the host reports the
// result (Received, LoadFailed, Sent).
type Connector struct {
	Consumer bool // requests can load; with several steps in flight blocks are freed late (RULES.md §19)
	Producer bool // blocks of finished requests can be sent

	// BestEffort says that a producer sends to a cache, which can miss. Otherwise a consumer waits for
	// the blocks, so a preempted request does not finish with what steps in flight sample: it computes
	// again, and has blocks to send when it finishes (vLLM: requires_kv_delivery).
	BestEffort bool
}

func (c *Connector) requiresKVDelivery() bool { return c.Producer && !c.BestEffort }

func (c *Connector) used() bool { return c.Consumer || c.Producer }

// A Match is a prefix of a request that can be loaded from elsewhere.
type Match struct {
	NumTokens int  // from the first one on; what is hit in the cache is not loaded
	Async     bool // the request waits while it is loaded, and others run
}

// Loading is a request whose keys and values are to be loaded: those of the
// tokens from NumComputedTokens on, into its block table. It runs after Received.
type Loading struct {
	ID                ID
	UserData          uint64
	NumComputedTokens int // hit in the cache, they need no loading
	NumExternalTokens int
}

// A Query is a request that waits for SetMatch.
type Query struct {
	ID                ID
	UserData          uint64
	NumComputedTokens int // hit in the cache at present, without a part of a block
}

// transfers is the state of a request's loads and sends.
type transfers struct {
	match      Match
	asks       bool // wants an answer each time it waits without blocks
	unanswered bool
	send       bool
	unsettled  int    // external tokens that a row in flight loads
	loading    bool   // has blocks and waits for their contents (WAITING_FOR_REMOTE_KVS)
	hitIn      uint64 // the step in which it hit the cache last: blocks that steps in flight then compute, perhaps; 0: it hit nothing
	received   bool   // that is over, and the queue has not noticed yet
	failed     bool   // a part of it did not come
	reserving  bool   // the blocks that it still needs are taken into account (vLLM: _inflight_prefills)
}

// transfer is the state of a scheduler's loads and sends.
type transfer struct {
	loads    []Loading // of the step that is being scheduled
	queries  []Query
	prefills []*request // that are reserving
	loading  int        // requests
	parked   int
}

func (c *Connector) checkSpec(spec *Spec) error {
	switch n := spec.External.NumTokens; {
	case n < 0 || n > len(spec.Tokens):
		return fmt.Errorf("%w: %d tokens to load for a prompt of %d", ErrRequest, n, len(spec.Tokens))
	case !c.Consumer && (n > 0 || spec.Ask || spec.External.Async):
		return fmt.Errorf("%w: it wants to load keys and values, but the scheduler's connector is no consumer", ErrRequest)
	case !c.Producer && spec.Send:
		return fmt.Errorf("%w: it wants to send its blocks, but the scheduler's connector is no producer", ErrRequest)
	}
	return nil
}

// Transfers is what the host of a connector calls. Each method is atomic, as those of the Scheduler are.
type Transfers struct{ s *Scheduler }

// SetMatch says what can be loaded for a request. The answer is used once, when the request is next
// admitted without blocks. If it has blocks, SetMatch changes nothing.
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

// forgetMatch drops the answer of SetMatch: it was used, or the request has lost its blocks and may
// find something else.
func (s *Scheduler) forgetMatch(r *request) {
	t := &r.transfers
	t.match, t.unanswered, t.unsettled = Match{}, t.asks, 0
}

// match finds what a waiting request need not compute: s.hit, and external tokens after it. known
// is false while SetMatch has not said how many.
func (s *Scheduler) match(r *request) (external int, known bool) {
	s.cache.Lookup(r.kv, &s.hit)
	t := &r.transfers
	local := s.hit.NumTokens
	part := local % s.cache.View.Config().SchedulerBlockSize
	if t.unanswered {
		s.transfer.queries = append(s.transfer.queries, Query{r.id, r.userData, local - part})
		return 0, false
	}
	most := r.kv.NumTokens()
	if !t.match.Async || most == 1 || s.differs.loads && s.cache.View.Recycles() {
		most-- // the last token is computed in any case, and windows leave what it attends to
	}
	external = max(min(t.match.NumTokens, most)-(local-part), 0)
	switch {
	case part == 0:
	case external > part: // what is loaded covers the part of a block, too
		s.hit.Truncate(s.cache, local-part)
	default:
		external = 0
	}
	return external, true
}

// load gives r blocks for its match and makes it wait for the contents.
func (s *Scheduler) load(r *request, external int) verdict {
	local := s.hit.NumTokens
	again := r.kv.Readmitted()
	ok := s.allocate(r, &kvcache.Alloc{
		Hit: &s.hit, NumExternalTokens: external, DelayCacheBlocks: true, NumInFlightTokens: r.inFlight,
		ReservedBlocks: s.reservedBlocks(), FullSequenceMustFit: !s.config.AdmitChunks, NothingScheduled: len(s.running) == 0,
		Record: true,
	})
	if !ok {
		return doesNotFit
	}
	s.cache.Transfers.SetWaiting(r.kv)
	s.count(r, local, external, again)
	r.kv.NumComputedTokens = local + external
	r.transfers.loading = true
	s.noteHit(r, local)
	if s.zero != nil {
		s.zero.loading(r, local, local+external)
	}
	s.transfer.loading++
	s.reserve(r)
	s.transfer.loads = append(s.transfer.loads, Loading{r.id, r.userData, local, external})
	return skipped
}

// noteHit remembers when r hit the cache.
func (s *Scheduler) noteHit(r *request, local int) {
	if r.transfers.hitIn = 0; local > 0 {
		r.transfers.hitIn = s.batch.seq
	}
}

// count counts an admission in which a connector was asked.
func (s *Scheduler) count(r *request, local, external int, again bool) {
	if !s.config.Connector.Consumer || r.kv.NumTokens() == local {
		return
	}
	c := &s.counters.External
	if again {
		c = &s.counters.ExternalPreempted
	}
	c.Requests++
	c.Queries += r.kv.NumTokens() - local
	c.Hits += external
}

// reserve counts the blocks that r still needs for its prompt as reserved: others may load only
// into what is left, because a request that loads cannot be preempted.
func (s *Scheduler) reserve(r *request) {
	if s.config.Connector.used() && !r.transfers.reserving {
		r.transfers.reserving = true
		s.transfer.prefills = append(s.transfer.prefills, r)
	}
}

func (s *Scheduler) unreserve(r *request) {
	if r.transfers.reserving {
		r.transfers.reserving = false
		s.transfer.prefills = slices.DeleteFunc(s.transfer.prefills, func(o *request) bool { return o == r })
	}
}

func (s *Scheduler) reservedBlocks() int {
	n := 0
	for _, r := range s.transfer.prefills {
		n += s.cache.Transfers.RemainingBlocks(r.kv)
	}
	return max(n, 0) // as vLLM, groups can need fewer than none
}

// release frees the blocks of r. If a step in flight may still write to them,
// and a load could get them, they are freed when the step is over.
func (s *Scheduler) release(r *request, why kvcache.Release) {
	s.unreserve(r)
	after := uint64(0)
	if r.inFlight > 0 && s.defersFrees() {
		after = s.flight.at(s.flight.n - 1).seq
	}
	s.cache.Release(r.kv, why, after)
}

func (s *Scheduler) defersFrees() bool {
	return s.config.Connector.Consumer && s.config.MaxConcurrentBatches > 1
}

// copyFence is the step that must be processed before the blocks of its copies
// can be free; 0: none.
func (s *Scheduler) copyFence() uint64 {
	if s.defersFrees() {
		return s.batch.seq
	}
	return 0
}

// holdsBlocks reports whether blocks would stay in use if all running requests were preempted.
func (s *Scheduler) holdsBlocks() bool {
	if s.transfer.parked > 0 || s.transfer.loading > 0 || s.cache.View.NumDeferred() > 0 {
		return true
	}
	for _, r := range s.allWaiting() { // loaded, and not admitted
		if r.transfers.loading || r.kv.NumComputedTokens > 0 {
			return true
		}
	}
	for _, r := range s.running {
		if r.inFlight > 0 && s.defersFrees() {
			return true
		}
	}
	return false
}

package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
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

// transfers is the state of a request's loads and sends.
type transfers struct {
	match      Match
	asks       bool   // wants an answer each time it waits without blocks
	unanswered bool   // waits for SetMatch
	send       bool   // its blocks are sent when it has finished
	unsettled  int    // external tokens that a row in flight loads
	loading    bool   // has blocks and waits for their contents (WAITING_FOR_REMOTE_KVS)
	received   bool   // its load is over, and it has not been looked at since
	failed     bool   // a part of its load did not come
	hitIn      uint64 // the step in which it hit the cache last: steps in flight may still compute what it hit; 0: it hit nothing
	reserving  bool   // the blocks that it still needs are taken into account (vLLM: _inflight_prefills)
}

// A connector is the extension for loads and sends (RULES.md §19).
type connector struct {
	noExtension
	s        *Scheduler
	prefills []*request // those that are reserving
	loading  int        // requests
	parked   int        // requests

	// Of the step that is being scheduled.
	loads   []Loading
	queries []Query

	// Of the request that is being admitted.
	asked           bool // match was called: it had no blocks
	again           bool // it was admitted before
	local, external int  // tokens that are hit in the cache, and that are loaded with its row
}

// counts returns how many requests wait for their load, and how many have finished with blocks in transfer.
func (c *connector) counts() (loading, parked int) {
	if c == nil {
		return 0, 0
	}
	return c.loading, c.parked
}

func (c *connector) startPass() { c.queries = c.queries[:0] }

func (c *connector) admits(r *request) bool {
	c.asked, c.external = false, 0
	if t := &r.transfers; t.loading {
		if !t.received {
			return false
		}
		c.promote(r)
	}
	return true
}

func (c *connector) match(r *request) (external int, v verdict) {
	n, known := c.find(r)
	switch {
	case !known:
		return 0, skipped
	case n > 0 && r.transfers.match.Async:
		return 0, c.load(r, n)
	}
	c.asked, c.again, c.local, c.external = true, r.kv.Readmitted(), c.s.hit.NumTokens, n
	return n, runs
}

// scheduled notes what was found for a request that is admitted.
func (c *connector) scheduled(r *request) {
	rows := c.s.batch.rows
	e := &rows[len(rows)-1]
	if !e.admitted {
		return
	}
	if c.asked {
		c.noteHit(r, c.local)
		c.count(r, c.local, c.external, c.again)
	}
	r.transfers.unsettled = c.external
	if int(e.computed+e.tokens) < r.kv.NumTokens() {
		c.reserve(r)
	}
}

func (c *connector) landed(r *request) { c.forgetMatch(r) }

func (c *connector) lost(r *request, why kvcache.Release) {
	c.unreserve(r)
	if why == kvcache.UndoAdmit {
		r.transfers.unsettled = 0 // its match is used again
	} else {
		c.forgetMatch(r)
	}
}

// aborted removes the keys of the tokens that a row in flight loads, too. Steps in flight may have had to compute what r
// has hit, so no token of r counts as loaded or computed.
func (c *connector) aborted(r *request) {
	t := &r.transfers
	if fresh := r.inFlight - r.stale; r.status == running && fresh > 0 {
		c.s.evictFrom(r, r.kv.NumComputedTokens-fresh-t.unsettled)
	}
	if c.s.flight.n > 0 {
		t.unsettled = r.kv.NumComputedTokens
	}
}

// keeps parks a finished request while its blocks are being loaded or sent.
func (c *connector) keeps(r *request) bool {
	r.kv.LeaveWindows(max(0, r.kv.NumComputedTokens-r.inFlight))
	if t := &r.transfers; !t.send && (!t.loading || t.received) {
		return false
	}
	c.unreserve(r)
	computed := min(max(0, r.kv.NumComputedTokens-r.inFlight-r.transfers.unsettled), r.kv.NumTokens())
	if r.transfers.loading && !r.transfers.received {
		computed = 0 // it is not known what will come
	}
	r.kv.NumComputedTokens = computed
	r.status = parked
	c.parked++
	return true
}

// settled drops a parked request if none of its blocks are being loaded or sent.
func (c *connector) settled(r *request) {
	if t := &r.transfers; t.send || t.loading && !t.received {
		return
	}
	c.parked--
	c.s.drop(r)
}

// holdsBlocks reports whether blocks would stay in use if all running requests were preempted.
func (c *connector) holdsBlocks() bool {
	if c.parked > 0 || c.loading > 0 || c.s.cache.NumDeferred() > 0 {
		return true
	}
	for _, r := range c.s.allWaiting() { // loaded, and not admitted
		if r.transfers.loading || r.kv.NumComputedTokens > 0 {
			return true
		}
	}
	for _, r := range c.s.running {
		if r.inFlight > 0 && c.s.defersFrees() {
			return true
		}
	}
	return false
}

// failing gives up loads that follow a hit of blocks which the failed steps, from step on, should
// have computed: the request would keep these blocks.
func (c *connector) failing(step uint64) {
	for _, r := range c.s.allWaiting() {
		if c.hasHit(r, step) {
			c.cutLoad(r, 0)
		}
	}
}

// hasHit reports whether r has blocks that it hit in step since or later.
func (c *connector) hasHit(r *request, since uint64) bool {
	return r.transfers.hitIn >= since && (r.transfers.loading || r.kv.NumComputedTokens > 0)
}

func (c *connector) write(step *Step) {
	s := c.s
	for i := range s.batch.rows {
		e := &s.batch.rows[i]
		if e.admitted {
			step.Rows[i].NumExternalTokens = e.r.transfers.unsettled
		}
		if e.samples {
			c.unreserve(e.r)
		}
	}
	c.touch(s.batch)
	step.Loads = append(step.Loads, c.loads...)
	step.Queries = append(step.Queries, c.queries...)
	c.loads = c.loads[:0]
	if !s.config.Connector.Producer {
		return
	}
	for _, t := range s.pending.Tails {
		id := ID(t.Request.Tag)
		step.Tails = append(step.Tails, Tail{id, s.requests.Get(uint64(id)).userData, t.Group, t.Block, t.NumTokens})
	}
}

// check counts loads and reservations again and compares.
func (c *connector) check() error {
	loading, reserving := 0, 0
	for _, r := range append(c.s.allWaiting(), c.s.running...) {
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
		case t.reserving != slices.Contains(c.prefills, r):
			return invariants.Broken("request %#x reserves blocks: %v, and is not in the list", uint64(r.id), t.reserving)
		case r.status != running && t.unsettled > 0:
			return invariants.Broken("request %#x waits with %d unsettled tokens", uint64(r.id), t.unsettled)
		case t.reserving && r.status == running && !r.prefill:
			return invariants.Broken("request %#x reserves blocks for a prompt that is computed", uint64(r.id))
		}
	}
	if loading > c.loading || reserving != len(c.prefills) {
		return invariants.Broken("%d requests are being loaded of %d, %d reserve blocks of %d", loading, c.loading, reserving, len(c.prefills))
	}
	return nil
}

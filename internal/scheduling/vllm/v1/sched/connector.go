package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A Connector configures transfers of keys and values between this cache and other machines or memory (vLLM's
// KVTransferConfig). The host says what can be loaded (Spec.External, SetMatch), steps list what to load
// (Row.NumExternalTokens, Step.Loads), and the host reports the results (Received, LoadFailed, Sent).
type Connector struct {
	Consumer bool // requests can load; if several steps are in flight, blocks are freed late (RULES.md §19)
	Producer bool // blocks of finished requests can be sent

	// BestEffort means that the producer sends to a cache, in which blocks may be missing.
	//
	// Without BestEffort, a consumer waits for the blocks of every finished request. A preempted request has lost its
	// blocks, so it must not finish before it has computed them again. The steps that are in flight when it is
	// preempted still sample tokens for it, and one of these tokens could finish it too early. So these tokens are
	// discarded (vLLM: requires_kv_delivery).
	BestEffort bool
}

func (c *Connector) requiresKVDelivery() bool { return c.Producer && !c.BestEffort }

func (c *Connector) used() bool { return c.Consumer || c.Producer }

// A Match says that a prefix of a request can be loaded by the connector.
type Match struct {
	NumTokens int  // length of the prefix; tokens that are hit in the cache are not loaded
	Async     bool // the request waits during the load; if false, its first row loads
}

// A Loading is a waiting request whose blocks the host must load. The request can run after Received.
type Loading struct {
	ID                ID
	UserData          uint64
	NumComputedTokens int // hit in the cache
	NumExternalTokens int // to load, after those
}

// A Query is a request that waits for SetMatch.
type Query struct {
	ID                ID
	UserData          uint64
	NumComputedTokens int // hit in the cache at present, in whole blocks
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
	asks       bool   // Spec.Ask
	unanswered bool   // it waits for SetMatch
	send       bool   // its blocks are to be sent when it has finished
	unsettled  int    // external tokens that a row in flight loads
	loading    bool   // it has blocks and waits for their contents (WAITING_FOR_REMOTE_KVS)
	received   bool   // loading, and Received was called
	failed     bool   // loading, and LoadFailed or StepFailed has invalidated some of its tokens
	hitIn      uint64 // step of the last admission or load, 0 if it had no hit; a step in flight may compute the hit
	reserving  bool   // it is in connector.prefills
}

// A connector is the extension for loads and sends (RULES.md §19).
type connector struct {
	noExtension
	s        *Scheduler
	prefills []*request // whose missing blocks are reserved (vLLM: _inflight_prefills)
	loading  int        // number of requests that load
	parked   int        // number of finished requests with blocks in transfer

	// Of the step that is being scheduled.
	loads   []Loading
	queries []Query

	// Of the request that is being admitted.
	asked           bool // match was called
	readmitted      bool // it was admitted before
	local, external int  // tokens of its hit, and those that its row loads
}

// counts returns c.loading and c.parked, or zeros if c is nil.
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

// match is called for a request r without blocks. It returns how many tokens the first row of r will load. If r may be
// admitted now, the verdict v has the value runs. Otherwise v says why r may not be admitted.
func (c *connector) match(r *request) (external int, v verdict) {
	n, known := c.find(r)
	switch {
	case !known:
		return 0, skipped
	case n > 0 && r.transfers.match.Async:
		return 0, c.load(r, n)
	}
	c.asked, c.readmitted, c.local, c.external = true, r.kv.Readmitted(), c.s.hit.NumTokens, n
	return n, runs
}

func (c *connector) scheduled(r *request) {
	rows := c.s.batch.rows
	e := &rows[len(rows)-1]
	if !e.admitted {
		return
	}
	if c.asked {
		c.noteHit(r, c.local)
		c.count(r, c.local, c.external, c.readmitted)
	}
	r.transfers.unsettled = c.external
	if int(e.computed+e.tokens) < r.kv.NumTokens() {
		c.reserve(r)
	}
}

// lost is called when r loses its blocks.
func (c *connector) lost(r *request, reason kvcache.Release) {
	c.unreserve(r)
	if reason == kvcache.UndoAdmit {
		r.transfers.unsettled = 0 // its match is used again
	} else {
		c.forgetMatch(r)
	}
}

// aborted is called before an aborted request is finished. The rows of r in flight may never be computed. If such a row
// loads tokens, aborted removes the keys of the blocks into which they are loaded, except with Config.AsVLLM.
//
// The blocks of r's cache hit may be incomplete, too, if a step in flight must still write to them. So if any step is
// in flight, none of r's tokens counts as computed.
func (c *connector) aborted(r *request) {
	t := &r.transfers
	if fresh := r.inFlight - r.stale; r.status == running && fresh > 0 {
		c.s.evictFrom(r, r.kv.NumComputedTokens-fresh-t.unsettled)
	}
	if c.s.flight.n > 0 {
		t.unsettled = r.kv.NumComputedTokens
	}
}

// keeps is called when r has finished. It frees the blocks that are before r's windows. It reports whether r must keep
// its other blocks because they are still being loaded, or are to be sent. If keeps returns true, the method settled
// drops r after the blocks have been loaded and sent.
func (c *connector) keeps(r *request) bool {
	r.kv.LeaveWindows(max(0, r.kv.NumComputedTokens-r.inFlight))
	if t := &r.transfers; !t.send && (!t.loading || t.received) {
		return false
	}
	c.unreserve(r)
	computed := min(max(0, r.kv.NumComputedTokens-r.inFlight-r.transfers.unsettled), r.kv.NumTokens())
	if r.transfers.loading && !r.transfers.received {
		computed = 0 // what will be loaded is not known
	}
	r.kv.NumComputedTokens = computed
	r.status = parked
	c.parked++
	return true
}

// settled drops a finished request that has kept its blocks, unless these are still being loaded or sent.
func (c *connector) settled(r *request) {
	if t := &r.transfers; t.send || t.loading && !t.received {
		return
	}
	c.parked--
	c.s.drop(r)
}

// holdsBlocks reports whether blocks stay in use if no request runs.
func (c *connector) holdsBlocks() bool {
	if c.parked > 0 || c.loading > 0 || c.s.cache.NumDeferred() > 0 {
		return true
	}
	loaded := func(r *request) bool { return r.transfers.loading || r.kv.NumComputedTokens > 0 }
	return slices.ContainsFunc(c.s.allWaiting(), loaded) ||
		c.s.defersFrees() && slices.ContainsFunc(c.s.running, func(r *request) bool { return r.inFlight > 0 })
}

// failing is called when steps have failed: the step with the given number and all later steps. The caller undoes these
// steps after the call. A waiting request can have a cache hit on tokens that one of these steps should compute. It can
// also load the tokens after the hit. failing undoes such hits and loads, or marks a load that it cannot undo yet as
// failed.
func (c *connector) failing(step uint64) {
	for _, r := range c.s.allWaiting() {
		if r.transfers.hitIn >= step && (r.transfers.loading || r.kv.NumComputedTokens > 0) {
			c.cutLoad(r, 0)
		}
	}
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

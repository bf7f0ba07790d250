package sched

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// find returns how many tokens after the hit the connector can load for a waiting request. known is false if the
// request needs a SetMatch first.
func (c *connector) find(r *request) (external int, known bool) {
	t := &r.transfers
	local := c.s.hit.NumTokens
	part := local % c.s.cache.Config.SchedulerBlockSize
	if t.unanswered {
		c.queries = append(c.queries, Query{r.id, r.userData, local - part})
		return 0, false
	}
	limit := r.kv.NumTokens()
	if !t.match.Async || limit == 1 || c.s.differs.loads && c.s.cache.Config.Recycles() {
		limit-- // the last token is always computed, which needs tokens that windows would have freed
	}
	external = max(min(t.match.NumTokens, limit)-(local-part), 0)
	switch {
	case part == 0:
	case external > part: // the load includes the part of a block
		c.s.hit.Truncate(c.s.cache, local-part)
	default:
		external = 0
	}
	return external, true
}

func (c *connector) load(r *request, external int) verdict {
	local := c.s.hit.NumTokens
	readmitted := r.kv.Readmitted()
	ok := c.s.allocate(r, &kvcache.Alloc{
		Hit: &c.s.hit, NumExternalTokens: external, DelayCacheBlocks: true, StaysWaiting: true, NumInFlightTokens: r.inFlight,
		ReservedBlocks: c.reservedBlocks(), FullSequenceMustFit: !c.s.config.AdmitChunks, NothingScheduled: len(c.s.running) == 0,
		Record: true,
	})
	if !ok {
		return doesNotFit
	}
	c.count(r, local, external, readmitted)
	r.kv.NumComputedTokens = local + external
	r.transfers.loading = true
	c.noteHit(r, local)
	if c.s.zero != nil {
		c.s.zero.loading(r, local, local+external)
	}
	c.loading++
	c.reserve(r)
	c.loads = append(c.loads, Loading{r.id, r.userData, local, external})
	return skipped
}

func (c *connector) noteHit(r *request, local int) {
	if r.transfers.hitIn = 0; local > 0 {
		r.transfers.hitIn = c.s.batch.seq
	}
}

func (c *connector) count(r *request, local, external int, readmitted bool) {
	if !c.s.config.Connector.Consumer || r.kv.NumTokens() == local {
		return
	}
	n := &c.s.counters.External
	if readmitted {
		n = &c.s.counters.ExternalPreempted
	}
	n.Requests++
	n.Queries += r.kv.NumTokens() - local
	n.Hits += external
}

// reserve reserves the blocks that r still needs for its tokens. The loads of other requests must leave as many blocks
// free. Otherwise loads could take all blocks, and no request could compute the rest of its tokens: a request that
// waits for its load keeps its blocks, because it cannot be preempted.
func (c *connector) reserve(r *request) {
	if !r.transfers.reserving {
		r.transfers.reserving = true
		c.prefills = append(c.prefills, r)
	}
}

func (c *connector) unreserve(r *request) {
	if r.transfers.reserving {
		r.transfers.reserving = false
		c.prefills = slices.DeleteFunc(c.prefills, func(o *request) bool { return o == r })
	}
}

func (c *connector) reservedBlocks() int {
	n := 0
	for _, r := range c.prefills {
		n += r.kv.RemainingBlocks()
	}
	return max(n, 0) // with Config.AsVLLM a group can need a negative number
}

// promote registers the blocks of a request whose load is over, and makes the request ready for admission (vLLM:
// _update_waiting_for_remote_kv). If the load has failed and keepsLoad returns false, promote frees the blocks instead.
func (c *connector) promote(r *request) {
	t := &r.transfers
	computed := r.kv.NumComputedTokens
	if t.failed && !c.keepsLoad(r, computed) {
		if c.s.differs.loads {
			c.unreserve(r) // vLLM keeps the reservation, so the request can wait for blocks that it reserves itself
		}
		c.s.cache.Release(r.kv, kvcache.UndoAdmit, 0)
	} else {
		c.s.store(r, computed)
		if t.failed {
			c.noteUnwritten(r, computed)
		}
		if computed == r.kv.NumTokens() { // the last token is computed in any case, for its logits
			r.kv.NumComputedTokens = computed - 1
		}
	}
	c.loadIsOver(r)
}

func (c *connector) unload(r *request) {
	c.unreserve(r)
	c.s.cache.Release(r.kv, kvcache.UndoAdmit, 0)
	c.loadIsOver(r)
}

func (c *connector) loadIsOver(r *request) {
	t := &r.transfers
	t.loading, t.received, t.failed = false, false, false
	c.forgetMatch(r)
	r.status = waiting
	if r.kv.NumPreemptions > 0 {
		r.status = preempted
	}
}

// forgetMatch removes the Match of r. If r was added with Spec.Ask, the host must call SetMatch again before r can be
// admitted without blocks.
func (c *connector) forgetMatch(r *request) {
	t := &r.transfers
	t.match, t.unanswered, t.unsettled = Match{}, t.asks, 0
}

// unblock frees the blocks of a waiting request whose load is over, if no request could run otherwise.
func (c *connector) unblock() bool {
	if len(c.s.running) > 0 || c.s.flight.n > 0 || c.s.pause != PauseNone || c.loading > 0 || c.parked > 0 {
		return false
	}
	return c.unloadLast()
}

// freeBlocks is called before a running request preempts itself because too few blocks are free. It reports whether it
// has freed blocks of another request.
func (c *connector) freeBlocks() bool { return c.s.differs.loads && c.unloadLast() }

// unloadLast frees the blocks of a request that still waits although its load is over. Of several such requests it
// takes the one whose load began last. It returns false if there is none.
func (c *connector) unloadLast() bool {
	for _, r := range slices.Backward(c.prefills) {
		if t := &r.transfers; r.status != running && (t.received || !t.loading && r.kv.NumComputedTokens > 0) {
			c.unload(r)
			return true
		}
	}
	return false
}

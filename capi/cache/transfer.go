package main

/*
#include "translate.h"
*/
import "C"

import (
	"llmmemory/internal/vllm/v1/sched"
)

//export llm_cache_match
func llm_cache_match(h C.llm_cache, id C.llm_request, external C.int32_t, flags C.uint32_t) C.int {
	return with(h, func(c *cache) error {
		if unknown := flags &^ C.LLM_CACHE_LOAD_ASYNC; unknown != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "flags %#x are not known", uint32(unknown))
		}
		inside, err := c.live(id)
		if err != nil {
			return err
		}
		return c.s.Transfers.SetMatch(inside, sched.Match{NumTokens: int(external), Async: flags != 0})
	})
}

//export llm_cache_received
func llm_cache_received(h C.llm_cache, ids *C.llm_request_in, n C.int64_t) C.int {
	return with(h, func(c *cache) error {
		var s spans
		inside, err := c.allPrivate(slice(&s, "ids", ids, n), &s)
		if err != nil {
			return err
		}
		return asRequest(c.s.Transfers.Received(inside...))
	})
}

//export llm_cache_sent
func llm_cache_sent(h C.llm_cache, ids *C.llm_request_in, n C.int64_t) C.int {
	return with(h, func(c *cache) error {
		var s spans
		inside, err := c.allPrivate(slice(&s, "ids", ids, n), &s)
		if err != nil {
			return err
		}
		return asRequest(c.s.Transfers.Sent(inside...))
	})
}

// asRequest is for errors that say that a request is not in the state for a call.
func asRequest(err error) error {
	if err != nil {
		return fail(C.LLM_CACHE_E_REQUEST, "%v", err)
	}
	return nil
}

//export llm_cache_load_failed
func llm_cache_load_failed(h C.llm_cache, blocks *C.llm_i32_in, n C.int64_t, failure *C.llm_cache_load_failure) C.int {
	return with(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_load_failure
		if err := filled(&o.spans, "failure", failure, C.sizeof_llm_cache_load_failure, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
		}
		output(&o.spans, "affected", in.affected.at, in.affected.cap)
		output(&o.spans, "void_rows", in.void_rows.at, in.void_rows.cap)
		given := slice(&o.spans, "blocks", (*int32)(blocks), n)
		if err := o.apart(); err != nil {
			return err
		}
		if err := c.s.Transfers.Affected(&c.failed, given...); err != nil {
			return err
		}
		o.need(in.affected.cap, &failure.affected.len, len(c.failed.Affected))
		o.need(in.void_rows.cap, &failure.void_rows.len, len(c.failed.Void))
		if err := o.fits(); err != nil {
			return err
		}
		if err := c.s.Transfers.LoadFailed(&c.failed, given...); err != nil {
			return err
		}
		c.writeIDs(&failure.affected, c.failed.Affected)
		rows := room(failure.void_rows.at, failure.void_rows.len)
		for i, v := range c.failed.Void {
			rows[i] = C.llm_cache_void_row{step: C.int32_t(v.Step), row: C.int32_t(v.Row)}
		}
		return nil
	})
}

// writeTails writes the states at ends of prompts that a connector can send.
func (c *cache) writeTails(t *C.llm_cache_step) {
	tails := room(t.tails.at, t.tails.len)
	for i := range tails {
		s := &c.step.Tails[i]
		tails[i] = C.llm_cache_tail{
			id: c.public(s.ID), user_data: C.uint64_t(s.UserData),
			group: C.int32_t(s.Group), block: C.int32_t(s.Block), tokens: C.int32_t(s.NumTokens),
		}
	}
}

// writeTransfers writes what a step says about loads.
func (c *cache) writeTransfers(t *C.llm_cache_step) {
	loads := room(t.loads.at, t.loads.len)
	for i := range loads {
		l := &c.step.Loads[i]
		loads[i] = C.llm_cache_load{
			id: c.public(l.ID), user_data: C.uint64_t(l.UserData),
			computed: C.int32_t(l.NumComputedTokens), external: C.int32_t(l.NumExternalTokens),
		}
	}
	queries := room(t.queries.at, t.queries.len)
	for i := range queries {
		q := &c.step.Queries[i]
		queries[i] = C.llm_cache_query{id: c.public(q.ID), user_data: C.uint64_t(q.UserData), computed: C.int32_t(q.NumComputedTokens)}
	}
}

func externalStats(to *C.llm_cache_stats, load *sched.Load, counters *sched.Counters) {
	first, again := &counters.External, &counters.ExternalPreempted
	to.external_requests, to.external_queries, to.external_hits = C.int64_t(first.Requests), C.int64_t(first.Queries), C.int64_t(first.Hits)
	to.resumed_external_requests, to.resumed_external_queries, to.resumed_external_hits =
		C.int64_t(again.Requests), C.int64_t(again.Queries), C.int64_t(again.Hits)
	to.loading, to.kept, to.deferred_blocks = C.int64_t(load.Loading), C.int64_t(load.Parked), C.int64_t(load.Deferred)
}

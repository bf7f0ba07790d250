package main

/*
#include "translate.h"
*/
import "C"

import (
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

//export llm_cache_match
func llm_cache_match(h C.llm_cache, id C.llm_request, external C.int32_t, flags C.uint32_t) C.int {
	return caches.use(h, func(c *cache) error {
		if unknown := flags &^ C.LLM_CACHE_LOAD_ASYNC; unknown != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "flags %#x are not known", uint32(unknown))
		}
		request, err := c.live(id)
		if err != nil {
			return err
		}
		return c.s.Transfers.SetMatch(request, sched.Match{NumTokens: int(external), Async: flags != 0})
	})
}

//export llm_cache_received
func llm_cache_received(h C.llm_cache, ids *C.llm_request_in, n C.int64_t) C.int {
	return withAll(h, ids, n, func(c *cache, requests []sched.ID) error { return asRequest(c.s.Transfers.Received(requests...)) })
}

//export llm_cache_sent
func llm_cache_sent(h C.llm_cache, ids *C.llm_request_in, n C.int64_t) C.int {
	return withAll(h, ids, n, func(c *cache, requests []sched.ID) error { return asRequest(c.s.Transfers.Sent(requests...)) })
}

// asRequest gives an error the code LLM_CACHE_E_REQUEST.
func asRequest(err error) error {
	if err != nil {
		return fail(C.LLM_CACHE_E_REQUEST, "%v", err)
	}
	return nil
}

//export llm_cache_load_failed
func llm_cache_load_failed(h C.llm_cache, blocks *C.llm_i32_in, n C.int64_t, failure *C.llm_cache_load_failure) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_load_failure
		if err := readOutStruct(&o, "failure", failure, C.sizeof_llm_cache_load_failure, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
		}
		c.putFailure(&o, failure)
		given := slice(&o.spans, "blocks", (*int32)(blocks), n)
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		if err := c.s.Transfers.Affected(&c.failed, given...); err != nil {
			return err
		}
		if err := o.fill(func() { c.putFailure(&o, failure) }); err != nil {
			return err
		}
		return c.s.Transfers.LoadFailed(&c.failed, given...)
	})
}

func (c *cache) putFailure(o *outputs, t *C.llm_cache_load_failure) {
	c.putIDs(o, "affected", &t.affected, c.failed.Affected)
	put(o, "void_rows", &t.void_rows.at, c.failed.Void, func(v *sched.VoidRow) C.llm_cache_void_row {
		return C.llm_cache_void_row{step: C.int32_t(v.Step), row: C.int32_t(v.Row)}
	})
}

func externalStats(stats *C.llm_cache_stats, load *sched.Load, counters *sched.Counters) {
	first, again := &counters.External, &counters.ExternalPreempted
	stats.external_requests, stats.external_queries, stats.external_hits = C.int64_t(first.Requests), C.int64_t(first.Queries), C.int64_t(first.Hits)
	stats.resumed_external_requests, stats.resumed_external_queries, stats.resumed_external_hits =
		C.int64_t(again.Requests), C.int64_t(again.Queries), C.int64_t(again.Hits)
	stats.loading, stats.kept, stats.deferred_blocks = C.int64_t(load.Loading), C.int64_t(load.Parked), C.int64_t(load.Deferred)
}

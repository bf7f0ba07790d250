package main

/*
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvevents"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

//export llm_cache_drain
func llm_cache_drain(h C.llm_cache, events *C.llm_cache_events) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_events
		if err := readOutStruct(&o, "events", events, C.sizeof_llm_cache_events, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
		}
		put := func() { c.putEvents(&o, events) }
		put()
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		c.takeEvents()
		return c.keepEvents(o.fill(put))
	})
}

// keepEvents returns err. If err is not nil, the events are kept for the next call.
func (c *cache) keepEvents(err error) error {
	c.hasKeptEvents = err != nil
	return err
}

// takeEvents fetches events, unless those of the last call were kept.
func (c *cache) takeEvents() {
	if !c.hasKeptEvents {
		c.s.Monitor.TakeEvents(&c.events)
		c.hasKeptEvents = true
	}
}

//export llm_cache_drain_msgpack
func llm_cache_drain_msgpack(h C.llm_cache, seconds C.double, rank C.int32_t, flags C.uint32_t, batch *C.llm_cache_bytes) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		if noteOne(&o.spans, "batch", batch); o.err != nil {
			return o.err
		}
		put := func() { putSlice(&o, "batch.at", &batch.at, c.batch) }
		put()
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		if unknown := flags &^ (C.LLM_CACHE_INT_HASHES | C.LLM_CACHE_EVENT_ARRAYS); unknown != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "flags %#x are not known", uint32(unknown))
		}
		c.takeEvents()
		c.batch = c.batch[:0]
		if len(c.events.List) > 0 {
			e := kvevents.Encoder{
				Groups: c.layers, DataParallelRank: int(rank),
				IntHashes: flags&C.LLM_CACHE_INT_HASHES != 0, Arrays: flags&C.LLM_CACHE_EVENT_ARRAYS != 0,
			}
			c.batch = e.AppendBatch(c.batch, float64(seconds), &c.events)
		}
		return c.keepEvents(o.fill(put))
	})
}

func (c *cache) putEvents(o *outputs, t *C.llm_cache_events) {
	h, n := 0, 0
	for i := range c.events.List {
		e := &c.events.List[i]
		h += len(c.events.Hashes(e))
		n += len(c.events.Tokens(e))
	}
	hashes := reserve[blockhash.Hash](o, "hashes", &t.hashes.at, h)
	tokens := reserve[int32](o, "tokens", &t.tokens.at, n)
	h, n = 0, 0
	put(o, "events.events", &t.events.at, c.events.List, func(e *pool.Event) C.llm_cache_event {
		h += copy(hashes[h:], c.events.Hashes(e))
		n += copy(tokens[n:], c.events.Tokens(e))
		return C.llm_cache_event{
			kind: C.int32_t(e.Kind), group: C.int32_t(e.Group), block_size: C.int32_t(e.BlockSize), lora_id: C.int64_t(e.LoRAID),
			has_parent: flag(e.HasParent), parent: *(*C.llm_cache_hash)(unsafe.Pointer(&e.Parent)),
			hashes_end: C.int64_t(h), tokens_end: C.int64_t(n),
		}
	})
}

package main

/*
#include "translate.h"
*/
import "C"

import (
	"llmmemory/internal/vllm/v1/kvevents"
	"llmmemory/internal/vllm/v1/pool"
)

//export llm_cache_drain
func llm_cache_drain(h C.llm_cache, events *C.llm_cache_events) C.int {
	return with(h, func(c *cache) error { return c.drain(events) })
}

func (c *cache) drain(t *C.llm_cache_events) error {
	var o outputs
	var in C.llm_cache_events
	if err := filled(&o.spans, "events", t, C.sizeof_llm_cache_events, &in); err != nil {
		return err
	}
	if in.reserved != 0 {
		return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
	}
	output(&o.spans, "events.events", in.events.at, in.events.cap)
	output(&o.spans, "hashes", in.hashes.at, in.hashes.cap)
	output(&o.spans, "tokens", in.tokens.at, in.tokens.cap)
	if err := o.apart(); err != nil {
		return err
	}
	c.takeEvents()
	hashes, tokens := 0, 0
	for i := range c.events.List {
		e := &c.events.List[i]
		hashes += len(c.events.Hashes(e))
		tokens += len(c.events.Tokens(e))
	}
	o.need(t.events.cap, &t.events.len, len(c.events.List))
	o.need(t.hashes.cap, &t.hashes.len, hashes)
	o.need(t.tokens.cap, &t.tokens.len, tokens)
	if err := o.fits(); err != nil {
		return err
	}
	c.writeEvents(t)
	c.keptEvents = false
	return nil
}

// takeEvents fetches events unless there are some that did not fit the last time.
func (c *cache) takeEvents() {
	if !c.keptEvents {
		c.s.Monitor.TakeEvents(&c.events)
		c.keptEvents = true
	}
}

//export llm_cache_drain_msgpack
func llm_cache_drain_msgpack(h C.llm_cache, seconds C.double, rank C.int32_t, flags C.uint32_t, batch *C.llm_cache_bytes) C.int {
	return with(h, func(c *cache) error {
		var o outputs
		if noteOne(&o.spans, "batch", batch); o.err != nil {
			return o.err
		}
		to := output(&o.spans, "batch.at", (*byte)(batch.at), batch.cap)
		if err := o.apart(); err != nil {
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
		o.need(batch.cap, &batch.len, len(c.batch))
		if err := o.fits(); err != nil {
			return err
		}
		copy(to, c.batch)
		c.keptEvents = false
		return nil
	})
}

func (c *cache) writeEvents(t *C.llm_cache_events) {
	events := room(t.events.at, t.events.len)
	hashes := room(t.hashes.at, t.hashes.len)
	tokens := room((*int32)(t.tokens.at), t.tokens.len)
	h, n := 0, 0
	for i := range events {
		e := &c.events.List[i]
		for _, hash := range c.events.Hashes(e) {
			hashes[h] = hashOfC(hash)
			h++
		}
		n += copy(tokens[n:], c.events.Tokens(e))
		events[i] = C.llm_cache_event{
			kind: C.int32_t(e.Kind), group: C.int32_t(e.Group), hashes_end: C.int64_t(h), tokens_end: C.int64_t(n),
		}
		if e.Kind != pool.Stored {
			continue
		}
		events[i].block_size, events[i].lora_id = C.int32_t(e.BlockSize), C.int64_t(e.LoRAID)
		if e.HasParent {
			events[i].has_parent, events[i].parent = 1, hashOfC(e.Parent)
		}
	}
}

func hashOfC(h [32]byte) (out C.llm_cache_hash) {
	for i, b := range h {
		out.bytes[i] = C.uint8_t(b)
	}
	return out
}

// Command cache is libllm_cache: the functions of llm_cache.h, llm_attention.h and llm_cuda.h, which call packages sched,
// memplan, attention, kvstore and kernels. It is built as a C shared library and as a C archive (see the Makefile),
// never as a program.
//
// The package only translates: it checks what C passes, makes one call, and copies the result into C's arrays. In
// addition, it manages handles, locks each cache during a call, and recovers from panics.
package main

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra -I.
#include "translate.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

func main() {}

//export llm_cache_open
func llm_cache_open(config *C.llm_cache_config_in, h *C.llm_cache) C.int {
	return status(guarded(func() error {
		var s spans
		var in C.llm_cache_config
		if err := readStruct(&s, "config", config, C.LLM_CONFIG_LEAST, &in); err != nil {
			return err
		}
		noteOne(&s, "cache", h)
		translated, err := configuration(&in, &s)
		if err != nil {
			return err
		}
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		if err := checkMemory(int(in.num_gpu_blocks)); err != nil {
			return err
		}
		scheduler, err := sched.New(translated)
		if err != nil {
			return err
		}
		c := &cache{s: scheduler, groups: len(translated.Cache.Groups), layers: translated.Cache.Groups, blocks: int(in.num_gpu_blocks)}
		given, err := enter(c)
		if err == nil {
			*h = given
		}
		return err
	}))
}

//export llm_cache_close
func llm_cache_close(h C.llm_cache) C.int {
	c, err := leave(h)
	if err != nil {
		return status(err)
	}
	const large = 1 << 16 // blocks; the memory of a large pool is collected at once
	if c.blocks >= large && !watched {
		runtime.GC()
	}
	return status(nil)
}

//export llm_cache_add
func llm_cache_add(h C.llm_cache, spec *C.llm_cache_spec_in, id *C.llm_request) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		var in C.llm_cache_spec
		if err := readStruct(&s, "spec", spec, C.LLM_SPEC_LEAST, &in); err != nil {
			return err
		}
		noteOne(&s, "id", id)
		translated, err := specOf(&in, &s)
		if err != nil {
			return err
		}
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		if err := c.checkLimit(); err != nil {
			return err
		}
		added, err := c.s.Add(translated)
		if err != nil {
			return err
		}
		*id = c.public(added)
		return nil
	})
}

func specOf(cSpec *C.llm_cache_spec, s *spans) (spec sched.Spec, err error) {
	const known = C.LLM_CACHE_NO_READ | C.LLM_CACHE_REPORT | C.LLM_CACHE_HOLD | C.LLM_CACHE_LOAD_ASYNC | C.LLM_CACHE_ASK | C.LLM_CACHE_SEND
	if unknown := cSpec.flags &^ known; unknown != 0 {
		return spec, fail(C.LLM_CACHE_E_RANGE, "flags %#x are not known", uint32(unknown))
	}
	if cSpec.stop.len > C.LLM_CACHE_MAX_STOP {
		return spec, fail(C.LLM_CACHE_E_RANGE, "%d stop tokens: want at most %d", cSpec.stop.len, C.LLM_CACHE_MAX_STOP)
	}
	tokens := slice(s, "tokens", (*int32)(cSpec.tokens.at), cSpec.tokens.len)
	stop := slice(s, "stop", (*int32)(cSpec.stop.at), cSpec.stop.len)
	salt, err := text("salt", cSpec.salt)
	if err != nil {
		return spec, err
	}
	lora, err := text("lora", cSpec.lora)
	if err != nil {
		return spec, err
	}
	spec = sched.Spec{
		Tokens: tokens, Stop: stop, MaxTokens: int(cSpec.max_tokens), MinTokens: int(cSpec.min_tokens),
		Priority: int(cSpec.priority), Arrival: float64(cSpec.arrival), LoRAID: int64(cSpec.lora_id),
		NoRead: cSpec.flags&C.LLM_CACHE_NO_READ != 0, Report: cSpec.flags&C.LLM_CACHE_REPORT != 0,
		Hold: cSpec.flags&C.LLM_CACHE_HOLD != 0, UserData: uint64(cSpec.user_data),
		External: sched.Match{NumTokens: int(cSpec.external), Async: cSpec.flags&C.LLM_CACHE_LOAD_ASYNC != 0},
		Ask:      cSpec.flags&C.LLM_CACHE_ASK != 0, Send: cSpec.flags&C.LLM_CACHE_SEND != 0,
	}
	spec.Extras.Salt, spec.Extras.LoRA = salt, lora
	if cSpec.is_embed != nil {
		spec.IsEmbed = slice(s, "is_embed", (*byte)(cSpec.is_embed), cSpec.tokens.len)
	}
	spec.Extras.Items, err = itemsOf(cSpec, s)
	return spec, err
}

func itemsOf(spec *C.llm_cache_spec, s *spans) ([]blockhash.Item, error) {
	if spec.items_len > C.LLM_CACHE_MAX_ITEMS {
		return nil, fail(C.LLM_CACHE_E_RANGE, "%d items: want at most %d", spec.items_len, C.LLM_CACHE_MAX_ITEMS)
	}
	var items []blockhash.Item
	for i, item := range slice(s, "items", spec.items, spec.items_len) {
		hash, err := text("the hash of an item", item.hash)
		switch {
		case err != nil:
			return nil, err
		case hash == "":
			return nil, fail(C.LLM_CACHE_E_NULL, "item %d has no hash", i)
		}
		items = append(items, blockhash.Item{Identifier: hash, Offset: int(item.offset), Length: int(item.length)})
	}
	return items, s.err
}

//export llm_cache_fork
func llm_cache_fork(h C.llm_cache, parent C.llm_request, last C.int32_t, arrival C.double, child *C.llm_request) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		if noteOne(&s, "child", child); s.err != nil {
			return s.err
		}
		request, err := c.live(parent)
		if err != nil {
			return err
		}
		if err := c.checkLimit(); err != nil {
			return err
		}
		forked, err := c.s.Fork(request, sched.Child{Last: int32(last), Arrival: float64(arrival)})
		if err != nil {
			return err
		}
		*child = c.public(forked)
		return nil
	})
}

//export llm_cache_abort
func llm_cache_abort(h C.llm_cache, ids *C.llm_request_in, n C.int64_t, aborted *C.int64_t) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		given := slice(&s, "ids", ids, n)
		noteOne(&s, "aborted", aborted)
		requests, err := c.allPrivate(given, &s)
		if err == nil {
			*aborted = C.int64_t(c.s.Abort(requests...))
		}
		return err
	})
}

//export llm_cache_release
func llm_cache_release(h C.llm_cache, ids *C.llm_request_in, n C.int64_t) C.int {
	return withAll(h, ids, n, func(c *cache, requests []sched.ID) error {
		c.s.Release(requests...)
		return nil
	})
}

func withAll(h C.llm_cache, ids *C.llm_request_in, n C.int64_t, f func(c *cache, requests []sched.ID) error) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		requests, err := c.allPrivate(slice(&s, "ids", ids, n), &s)
		if err != nil {
			return err
		}
		return f(c, requests)
	})
}

// allPrivate converts a C array of request ids into ids of the scheduler. Before that, it checks the memory ranges in
// s.
func (c *cache) allPrivate(given []C.llm_request_in, s *spans) ([]sched.ID, error) {
	if err := s.checkOverlaps(); err != nil {
		return nil, err
	}
	c.ids = c.ids[:0]
	for _, id := range given {
		request, err := c.private(id)
		if err != nil {
			return nil, err
		}
		c.ids = append(c.ids, request)
	}
	return c.ids, nil
}

//export llm_cache_progress
func llm_cache_progress(h C.llm_cache, id C.llm_request, computed, tokens *C.int64_t) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		noteOne(&s, "computed", computed)
		noteOne(&s, "tokens", tokens)
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		request, err := c.private(id)
		if err != nil {
			return err
		}
		done, all, err := c.s.Monitor.NumComputedTokens(request)
		if err != nil {
			return finished(id)
		}
		*computed, *tokens = C.int64_t(done), C.int64_t(all)
		return nil
	})
}

//export llm_cache_set_drafts
func llm_cache_set_drafts(h C.llm_cache, ids *C.llm_request_in, counts *C.llm_i32_in, n C.int64_t, tokens *C.llm_i32_in, total C.int64_t) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		given := slice(&s, "ids", ids, n)
		perRequest := slice(&s, "counts", (*int32)(counts), n)
		drafts := slice(&s, "tokens", (*int32)(tokens), total)
		requests, err := c.allPrivate(given, &s)
		if err != nil {
			return err
		}
		return c.s.SetDrafts(requests, perRequest, drafts)
	})
}

//export llm_cache_table
func llm_cache_table(h C.llm_cache, id C.llm_request, group C.int32_t, table *C.llm_cache_i32s) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		if noteOne(&o.spans, "table", table); o.err != nil {
			return o.err
		}
		put := func() { putSlice(&o, "table.at", &table.at, c.table) }
		put()
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		request, err := c.private(id)
		if err != nil {
			return err
		}
		if group < 0 || int(group) >= c.groups {
			return fail(C.LLM_CACHE_E_RANGE, "group %d of %d", group, c.groups)
		}
		if c.table, err = c.s.Monitor.Table(c.table[:0], request, int(group)); err != nil {
			return finished(id)
		}
		return o.fill(put)
	})
}

//export llm_cache_statistics
func llm_cache_statistics(h C.llm_cache, stats *C.llm_cache_stats) C.int {
	return caches.use(h, func(c *cache) error {
		var s spans
		n, err := size(&s, "stats", stats, C.LLM_STATS_LEAST)
		if err != nil {
			return err
		}
		var out C.llm_cache_stats
		load, taken, counters := c.s.Monitor.Load(), c.s.Monitor.TakeStats(), c.s.Monitor.TakeCounters()
		out.size = C.uint32_t(n)
		out.reset = flag(taken.Reset)
		out.running, out.waiting = C.int64_t(load.Running), C.int64_t(load.Waiting)
		out.free_blocks, out.blocks = C.int64_t(load.FreeBlocks), C.int64_t(load.Blocks)
		out.requests, out.queries, out.hits = C.int64_t(taken.Requests), C.int64_t(taken.Queries), C.int64_t(taken.Hits)
		out.resumed, out.resumed_queries, out.resumed_hits =
			C.int64_t(taken.Preempted), C.int64_t(taken.PreemptedQueries), C.int64_t(taken.Rehits)
		out.in_flight, out.preemptions = C.int64_t(load.InFlight), C.int64_t(counters.Preemptions)
		out.sampled, out.drafts, out.drafts_accepted = C.int64_t(counters.Tokens), C.int64_t(counters.Drafts), C.int64_t(counters.DraftsAccepted)
		out.admitted, out.queue_ns = C.int64_t(counters.Admitted), C.int64_t(counters.QueueTime)
		externalStats(&out, &load, &counters)
		out.encoder_taken, out.encoder_referenced = C.int64_t(load.Encoder.Taken), C.int64_t(load.Encoder.Referenced)
		dst := unsafe.Slice((*byte)(unsafe.Pointer(stats)), n)
		src := unsafe.Slice((*byte)(unsafe.Pointer(&out)), C.sizeof_llm_cache_stats)
		clear(dst[copy(dst, src):])
		return nil
	})
}

//export llm_cache_reset
func llm_cache_reset(h C.llm_cache, preempt C.int) C.int {
	return caches.use(h, func(c *cache) error {
		ok, err := c.s.Reset(preempt != 0)
		if err == nil && !ok {
			err = fail(C.LLM_CACHE_E_BUSY, "requests have blocks")
		}
		return err
	})
}

//export llm_cache_reset_encoder
func llm_cache_reset_encoder(h C.llm_cache) C.int {
	return caches.use(h, func(c *cache) error { return c.s.ResetEncoderCache() })
}

//export llm_cache_pause
func llm_cache_pause(h C.llm_cache, pause C.int32_t) C.int {
	return caches.use(h, func(c *cache) error {
		if pause < C.LLM_CACHE_PAUSE_NONE || pause > C.LLM_CACHE_PAUSE_ALL {
			return fail(C.LLM_CACHE_E_RANGE, "pause is %d: want %d to %d", pause, C.LLM_CACHE_PAUSE_NONE, C.LLM_CACHE_PAUSE_ALL)
		}
		c.s.SetPause(sched.Pause(pause))
		return nil
	})
}

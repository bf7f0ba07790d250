package main

/*
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

//export llm_cache_schedule
func llm_cache_schedule(h C.llm_cache, step *C.llm_cache_step) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_step
		if err := readOutStruct(&o, "step", step, C.LLM_STEP_LEAST, &in); err != nil {
			return err
		}
		c.putStep(&o, step, in.size)
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		if !c.kept {
			if err := c.s.Schedule(&c.step); err != nil {
				return err
			}
			c.kept = true
			c.step.Loads = append(c.step.Loads, c.loads...)
			c.loads = c.loads[:0]
			if n := len(c.step.Rows); n > 0 {
				c.rows = append(c.rows, n)
			}
		}
		if err := o.fill(func() { c.putStep(&o, step, in.size) }); err != nil {
			return err
		}
		step.tokens = C.int32_t(c.step.NumScheduledTokens)
		c.kept = false
		return nil
	})
}

func (c *cache) putStep(o *outputs, t *C.llm_cache_step, size C.uint32_t) {
	s := &c.step
	put(o, "rows", &t.rows.at, s.Rows, func(r *sched.Row) C.llm_cache_row {
		return C.llm_cache_row{
			id: c.public(r.ID), user_data: C.uint64_t(r.UserData), kind: C.int32_t(r.Kind), samples: flag(r.Samples),
			computed: C.int32_t(r.NumComputedTokens), tokens: C.int32_t(r.NumScheduledTokens),
			drafts: C.int32_t(r.NumDraftTokens), external: C.int32_t(r.NumExternalTokens),
		}
	})
	putSlice(o, "drafts", &t.drafts.at, s.Drafts)
	putSlice(o, "blocks", &t.blocks.at, s.Blocks)
	putSlice(o, "block_starts", &t.block_starts.at, s.BlockStarts)
	putSlice(o, "block_ends", &t.block_ends.at, s.BlockEnds)
	slots := reserve[int64](o, "slots", &t.slots.at, s.NumScheduledTokens*c.groups)
	for g := range s.Slots {
		slots = slots[copy(slots, s.Slots[g]):]
	}
	put(o, "copies", &t.copies.at, s.Copies, func(p *sched.Copy) C.llm_cache_copy {
		return C.llm_cache_copy{
			src: C.int32_t(p.Src), dst: C.int32_t(p.Dst), group: C.int32_t(p.Group), index: C.int32_t(p.Index), id: c.public(p.ID),
		}
	})
	putSlice(o, "common", &t.common.at, s.NumCommonPrefixBlocks)
	c.putIDs(o, "preempted", &t.preempted, s.Preempted)
	c.putIDs(o, "finished", &t.finished, s.Finished)
	put(o, "loads", &t.loads.at, s.Loads, func(l *sched.Loading) C.llm_cache_load {
		return C.llm_cache_load{
			id: c.public(l.ID), user_data: C.uint64_t(l.UserData),
			computed: C.int32_t(l.NumComputedTokens), external: C.int32_t(l.NumExternalTokens),
		}
	})
	put(o, "queries", &t.queries.at, s.Queries, func(q *sched.Query) C.llm_cache_query {
		return C.llm_cache_query{id: c.public(q.ID), user_data: C.uint64_t(q.UserData), computed: C.int32_t(q.NumComputedTokens)}
	})
	put(o, "encoder_inputs", &t.encoder_inputs.at, s.EncoderInputs, func(input *sched.EncoderInput) C.llm_cache_encoder_input {
		return C.llm_cache_encoder_input{
			id: c.public(input.ID), user_data: C.uint64_t(input.UserData), row: C.int32_t(input.Row), item: C.int32_t(input.Item),
		}
	})
	c.freed = c.freed[:0]
	for _, hash := range s.FreedEncoderOutputs {
		c.freed = append(append(c.freed, hash...), 0)
	}
	putSlice(o, "freed_encoder_outputs", &t.freed_encoder_outputs.at, c.freed)
	putSlice(o, "zero", &t.zero.at, s.ZeroBlocks)
	if uintptr(size) < unsafe.Sizeof(*t) {
		return // the struct of an older header has no tails
	}
	put(o, "tails", &t.tails.at, s.Tails, func(l *sched.Tail) C.llm_cache_tail {
		return C.llm_cache_tail{
			id: c.public(l.ID), user_data: C.uint64_t(l.UserData),
			group: C.int32_t(l.Group), block: C.int32_t(l.Block), tokens: C.int32_t(l.NumTokens),
		}
	})
}

func (c *cache) putIDs(o *outputs, name string, t *C.llm_cache_ids, ids []sched.ID) {
	put(o, name, &t.at, ids, func(id *sched.ID) C.llm_request { return c.public(*id) })
}

// flag is 1 if b is set.
func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

//export llm_cache_step_failed
func llm_cache_step_failed(h C.llm_cache) C.int {
	return caches.use(h, func(c *cache) error {
		if err := c.s.StepFailed(); err != nil {
			return err
		}
		if c.kept && len(c.step.Rows) > 0 { // the caller did not get the step
			c.loads = append(c.loads, c.step.Loads...)
			c.kept = false
		}
		c.rows = c.rows[:0]
		return nil
	})
}

//export llm_cache_update
func llm_cache_update(h C.llm_cache, counts *C.llm_i32_in, rows C.int64_t, tokens *C.llm_i32_in, n C.int64_t, outcome *C.llm_cache_outcome) C.int {
	return caches.use(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_outcome
		if err := readOutStruct(&o, "outcome", outcome, C.sizeof_llm_cache_outcome, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
		}
		put := func() { c.putOutcome(&o, outcome) }
		put()
		perRow := slice(&o.spans, "counts", (*int32)(counts), rows)
		sampled := slice(&o.spans, "tokens", (*int32)(tokens), n)
		if err := o.checkOverlaps(); err != nil {
			return err
		}
		if err := c.update(perRow, sampled, outcome); err != nil {
			return err
		}
		return o.fill(put)
	})
}

func (c *cache) putOutcome(o *outputs, t *C.llm_cache_outcome) {
	putSlice(o, "kept", &t.kept.at, c.out.Kept)
	put(o, "done", &t.done.at, c.out.Done, func(d *sched.Done) C.llm_cache_done {
		return C.llm_cache_done{id: c.public(d.ID), user_data: C.uint64_t(d.UserData), reason: C.int32_t(d.Reason)}
	})
}

func (c *cache) update(counts, tokens []int32, t *C.llm_cache_outcome) error {
	switch rows := C.int64_t(len(counts)); {
	case len(c.rows) == 0:
		return fail(C.LLM_CACHE_E_ORDER, "no step is in flight")
	case c.kept && len(c.rows) == 1 && len(c.step.Rows) > 0:
		return fail(C.LLM_CACHE_E_ORDER, "the step has not been handed out: call llm_cache_schedule with larger arrays")
	case len(counts) != c.rows[0]:
		return fail(C.LLM_CACHE_E_RANGE, "counts for %d rows, the oldest step in flight has %d", len(counts), c.rows[0])
	case t.kept.cap < rows || t.done.cap < rows:
		t.kept.len, t.done.len = rows, rows
		return errSmall
	}
	if err := c.s.Update(counts, tokens, &c.out); err != nil {
		return err
	}
	c.rows = append(c.rows[:0], c.rows[1:]...)
	return nil
}

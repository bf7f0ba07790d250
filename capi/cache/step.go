package main

/*
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/vllm/v1/sched"
)

//export llm_cache_schedule
func llm_cache_schedule(h C.llm_cache, step *C.llm_cache_step) C.int {
	return with(h, func(c *cache) error { return c.schedule(step) })
}

func (c *cache) schedule(t *C.llm_cache_step) error {
	var o outputs
	var in C.llm_cache_step
	if err := filled(&o.spans, "step", t, C.LLM_STEP_LEAST, &in); err != nil {
		return err
	}
	if err := o.noteStep(&in); err != nil {
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
	c.needStep(&o, t)
	if err := c.needLater(&o, t, in.size); err != nil {
		return err
	}
	if err := o.fits(); err != nil {
		return err
	}
	c.writeStep(t)
	if in.size >= C.LLM_STEP_TRANSFERS {
		c.writeTransfers(t)
	}
	if in.size >= C.LLM_STEP_ENCODER {
		c.writeEncoder(t)
	}
	if in.size >= C.sizeof_llm_cache_step {
		copy(room((*int32)(t.zero.at), t.zero.len), c.step.ZeroBlocks)
		c.writeTails(t)
	}
	c.kept = false
	return nil
}

// needLater records the entries that later fields need; a struct of size bytes may lack these
// fields.
func (c *cache) needLater(o *outputs, t *C.llm_cache_step, size C.uint32_t) error {
	s, freed := &c.step, c.freedBytes()
	lacks := func(fields string) error {
		return fail(C.LLM_CACHE_E_SIZE, "the step ends before its %s, and has some", fields)
	}
	if size >= C.LLM_STEP_TRANSFERS {
		o.need(t.loads.cap, &t.loads.len, len(s.Loads))
		o.need(t.queries.cap, &t.queries.len, len(s.Queries))
	} else if len(s.Loads)+len(s.Queries) > 0 {
		return lacks("fields loads and queries")
	}
	if size >= C.LLM_STEP_ENCODER {
		o.need(t.encoder_inputs.cap, &t.encoder_inputs.len, len(s.EncoderInputs))
		o.need(t.freed_encoder_outputs.cap, &t.freed_encoder_outputs.len, freed)
	} else if len(s.EncoderInputs)+freed > 0 {
		return lacks("fields encoder_inputs and freed_encoder_outputs")
	}
	if size >= C.sizeof_llm_cache_step {
		o.need(t.zero.cap, &t.zero.len, len(s.ZeroBlocks))
		o.need(t.tails.cap, &t.tails.len, len(s.Tails))
	} else if len(s.ZeroBlocks) > 0 {
		return lacks("field zero")
	}
	return nil
}

// noteStep notes the arrays of a step.
func (o *outputs) noteStep(t *C.llm_cache_step) error {
	output(&o.spans, "rows", t.rows.at, t.rows.cap)
	output(&o.spans, "drafts", t.drafts.at, t.drafts.cap)
	output(&o.spans, "blocks", t.blocks.at, t.blocks.cap)
	output(&o.spans, "block_starts", t.block_starts.at, t.block_starts.cap)
	output(&o.spans, "block_ends", t.block_ends.at, t.block_ends.cap)
	output(&o.spans, "slots", t.slots.at, t.slots.cap)
	output(&o.spans, "copies", t.copies.at, t.copies.cap)
	output(&o.spans, "common", t.common.at, t.common.cap)
	output(&o.spans, "preempted", t.preempted.at, t.preempted.cap)
	output(&o.spans, "finished", t.finished.at, t.finished.cap)
	output(&o.spans, "loads", t.loads.at, t.loads.cap)
	output(&o.spans, "queries", t.queries.at, t.queries.cap)
	output(&o.spans, "encoder_inputs", t.encoder_inputs.at, t.encoder_inputs.cap)
	output(&o.spans, "freed_encoder_outputs", t.freed_encoder_outputs.at, t.freed_encoder_outputs.cap)
	output(&o.spans, "zero", t.zero.at, t.zero.cap)
	output(&o.spans, "tails", t.tails.at, t.tails.cap)
	return o.apart()
}

func (c *cache) needStep(o *outputs, t *C.llm_cache_step) {
	s := &c.step
	o.need(t.rows.cap, &t.rows.len, len(s.Rows))
	o.need(t.drafts.cap, &t.drafts.len, len(s.Drafts))
	o.need(t.blocks.cap, &t.blocks.len, len(s.Blocks))
	o.need(t.block_starts.cap, &t.block_starts.len, len(s.BlockStarts))
	o.need(t.block_ends.cap, &t.block_ends.len, len(s.BlockEnds))
	o.need(t.slots.cap, &t.slots.len, s.NumScheduledTokens*c.groups)
	o.need(t.copies.cap, &t.copies.len, len(s.Copies))
	o.need(t.common.cap, &t.common.len, len(s.NumCommonPrefixBlocks))
	o.need(t.preempted.cap, &t.preempted.len, len(s.Preempted))
	o.need(t.finished.cap, &t.finished.len, len(s.Finished))
}

func (c *cache) writeStep(t *C.llm_cache_step) {
	s := &c.step
	t.tokens = C.int32_t(s.NumScheduledTokens)
	rows := room(t.rows.at, t.rows.len)
	for i := range rows {
		r := &s.Rows[i]
		rows[i] = C.llm_cache_row{
			id: c.public(r.ID), user_data: C.uint64_t(r.UserData), kind: C.int32_t(r.Kind), computed: C.int32_t(r.NumComputedTokens),
			tokens: C.int32_t(r.NumScheduledTokens), drafts: C.int32_t(r.NumDraftTokens), external: C.int32_t(r.NumExternalTokens),
		}
		if r.Samples {
			rows[i].samples = 1
		}
	}
	copies := room(t.copies.at, t.copies.len)
	for i := range copies {
		p := &s.Copies[i]
		copies[i] = C.llm_cache_copy{
			src: C.int32_t(p.Src), dst: C.int32_t(p.Dst), group: C.int32_t(p.Group), index: C.int32_t(p.Index), id: c.public(p.ID),
		}
	}
	copy(room((*int32)(t.drafts.at), t.drafts.len), s.Drafts)
	copy(room((*int32)(t.blocks.at), t.blocks.len), s.Blocks)
	copy(room((*int32)(t.common.at), t.common.len), s.NumCommonPrefixBlocks)
	copy(room((*int)(unsafe.Pointer(t.block_starts.at)), t.block_starts.len), s.BlockStarts)
	copy(room((*int)(unsafe.Pointer(t.block_ends.at)), t.block_ends.len), s.BlockEnds)
	slots := room((*int64)(t.slots.at), t.slots.len)
	for g := range s.Slots {
		slots = slots[copy(slots, s.Slots[g]):]
	}
	c.writeIDs(&t.preempted, s.Preempted)
	c.writeIDs(&t.finished, s.Finished)
}

func (c *cache) writeIDs(t *C.llm_cache_ids, ids []sched.ID) {
	to := room(t.at, t.len)
	for i := range to {
		to[i] = c.public(ids[i])
	}
}

// freedBytes is the length of the hashes of outputs to drop, with their final zeros.
func (c *cache) freedBytes() int {
	n := 0
	for _, hash := range c.step.FreedEncoderOutputs {
		n += len(hash) + 1
	}
	return n
}

func (c *cache) writeEncoder(t *C.llm_cache_step) {
	inputs := room(t.encoder_inputs.at, t.encoder_inputs.len)
	for i := range inputs {
		in := &c.step.EncoderInputs[i]
		inputs[i] = C.llm_cache_encoder_input{
			id: c.public(in.ID), user_data: C.uint64_t(in.UserData), row: C.int32_t(in.Row), item: C.int32_t(in.Item),
		}
	}
	freed := room((*byte)(t.freed_encoder_outputs.at), t.freed_encoder_outputs.len)
	for _, hash := range c.step.FreedEncoderOutputs {
		freed[copy(freed, hash)] = 0
		freed = freed[len(hash)+1:]
	}
}

//export llm_cache_step_failed
func llm_cache_step_failed(h C.llm_cache) C.int {
	return with(h, func(c *cache) error {
		if err := c.s.StepFailed(); err != nil {
			return err
		}
		if c.kept && len(c.step.Rows) > 0 { // the caller has not seen it
			c.loads = append(c.loads, c.step.Loads...)
			c.kept = false
		}
		c.rows = c.rows[:0]
		return nil
	})
}

//export llm_cache_update
func llm_cache_update(h C.llm_cache, counts *C.llm_i32_in, rows C.int64_t, tokens *C.llm_i32_in, n C.int64_t, outcome *C.llm_cache_outcome) C.int {
	return with(h, func(c *cache) error {
		var o outputs
		var in C.llm_cache_outcome
		if err := filled(&o.spans, "outcome", outcome, C.sizeof_llm_cache_outcome, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved is %d: want 0", in.reserved)
		}
		output(&o.spans, "kept", in.kept.at, in.kept.cap)
		output(&o.spans, "done", in.done.at, in.done.cap)
		perRow := slice(&o.spans, "counts", (*int32)(counts), rows)
		sampled := slice(&o.spans, "tokens", (*int32)(tokens), n)
		if err := o.apart(); err != nil {
			return err
		}
		return c.update(perRow, sampled, &o, outcome)
	})
}

func (c *cache) update(counts, tokens []int32, o *outputs, t *C.llm_cache_outcome) error {
	switch {
	case len(c.rows) == 0:
		return fail(C.LLM_CACHE_E_ORDER, "no step is in flight")
	case c.kept && len(c.rows) == 1 && len(c.step.Rows) > 0:
		return fail(C.LLM_CACHE_E_ORDER, "the step has not been handed out: call llm_cache_schedule with larger arrays")
	case len(counts) != c.rows[0]:
		return fail(C.LLM_CACHE_E_RANGE, "counts for %d rows, the oldest step in flight has %d", len(counts), c.rows[0])
	}
	o.small = int64(t.kept.cap) < int64(len(counts)) || int64(t.done.cap) < int64(len(counts))
	if o.small {
		t.kept.len, t.done.len = C.int64_t(len(counts)), C.int64_t(len(counts))
		return o.fits()
	}
	if err := c.s.Update(counts, tokens, &c.out); err != nil {
		return err
	}
	c.rows = append(c.rows[:0], c.rows[1:]...)
	t.kept.len, t.done.len = C.int64_t(len(c.out.Kept)), C.int64_t(len(c.out.Done))
	copy(room((*int32)(t.kept.at), t.kept.len), c.out.Kept)
	done := room(t.done.at, t.done.len)
	for i := range done {
		done[i] = C.llm_cache_done{id: c.public(c.out.Done[i].ID), user_data: C.uint64_t(c.out.Done[i].UserData), reason: C.int32_t(c.out.Done[i].Reason)}
	}
	return nil
}

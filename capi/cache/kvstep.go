package main

/*
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

//export llm_kvstore_begin
func llm_kvstore_begin(h C.llm_kvstore, step *C.llm_cache_step_in) C.int {
	return stores.use(h, func(k *store) error {
		var s spans
		var in C.llm_cache_step
		if err := readStruct(&s, "step", step, C.LLM_STEP_LEAST, &in); err != nil {
			return err
		}
		rows := slice(&s, "rows", in.rows.at, in.rows.len)
		copies := slice(&s, "copies", in.copies.at, in.copies.len)
		blocks := slice(&s, "blocks", (*int32)(in.blocks.at), in.blocks.len)
		starts := slice(&s, "block_starts", (*int64)(in.block_starts.at), in.block_starts.len)
		ends := slice(&s, "block_ends", (*int64)(in.block_ends.at), in.block_ends.len)
		slots := slice(&s, "slots", (*int64)(in.slots.at), in.slots.len)
		preempted := slice(&s, "preempted", in.preempted.at, in.preempted.len)
		finished := slice(&s, "finished", in.finished.at, in.finished.len)
		k.avoidStore(&s)
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		if in.tokens < 0 || len(slots) != int(in.tokens)*k.groups {
			return fail(C.LLM_CACHE_E_RANGE, "the step has %d slots for %d tokens in %d groups: want one for each token and group",
				len(slots), in.tokens, k.groups)
		}
		k.gone = k.gone[:0]
		for _, ids := range [...][]C.llm_request{preempted, finished} {
			for _, id := range ids {
				k.gone = append(k.gone, uint64(id))
			}
		}
		if err := k.rowsOf(rows, int(in.tokens)); err != nil {
			return err
		}
		for _, c := range copies {
			if c.group < 0 || int(c.group) >= k.groups {
				return fail(C.LLM_CACHE_E_RANGE, "block %d is copied for group %d: the store has %d", c.src, c.group, k.groups)
			}
		}
		if err := k.requests.CheckSlots(slots); err != nil {
			return err
		}
		if err := k.requests.Check(k.gone, k.rows, blocks, starts, ends); err != nil {
			return err
		}
		// Nothing can fail after the copies, so a step that returns an error has not changed a block table.
		if err := k.copy(copies); err != nil {
			return err
		}
		k.requests.Begin(k.rows, blocks, starts, ends)
		k.slots, k.begun = append(k.slots[:0], slots...), true
		return nil
	})
}

// avoidStore records an error in s if a memory range in s overlaps with the memory of the store.
func (k *store) avoidStore(s *spans) {
	device, host := k.s.Memory()
	s.avoid("the store", device)
	s.avoid("the host blocks of the store", host)
}

// copy copies blocks and updates the block tables. It removes the tables of the requests that were preempted or have
// finished. In the table of each request with a copied block, it replaces the copied block by the copy.
func (k *store) copy(copies []C.llm_cache_copy) error {
	k.pairs = k.pairs[:0]
	for _, c := range copies {
		k.pairs = append(k.pairs, kvstore.Pair{Src: int32(c.src), Dst: int32(c.dst)})
	}
	if err := k.s.CopyBlocks(k.pairs); err != nil {
		return err
	}
	for _, id := range k.gone {
		k.requests.Forget(id)
	}
	for _, c := range copies {
		k.requests.Point(uint64(c.id), int(c.group), int(c.index), int32(c.dst))
	}
	return nil
}

// rowsOf sets k.rows to the rows of a step. It returns an error if the kind of a row is unknown, or if the total number
// of tokens in the rows differs from tokens.
func (k *store) rowsOf(rows []C.llm_cache_row, tokens int) error {
	k.rows = k.rows[:0]
	remaining := tokens
	for _, r := range rows {
		if r.kind < C.LLM_CACHE_ROW_RUNNING || r.kind > C.LLM_CACHE_ROW_RESUMED {
			return fail(C.LLM_CACHE_E_RANGE, "the row of request %#x has the kind %d, which is none", uint64(r.id), r.kind)
		}
		k.rows = append(k.rows, kvstore.Row{
			ID: uint64(r.id), Fresh: r.kind != C.LLM_CACHE_ROW_RUNNING, Computed: int(r.computed), Tokens: int(r.tokens),
		})
		remaining -= int(r.tokens)
	}
	if remaining != 0 {
		return fail(C.LLM_CACHE_E_RANGE, "the rows have %d tokens, the step %d", tokens-remaining, tokens)
	}
	return nil
}

func (k *store) slotsOf(layer C.int32_t) ([]int64, error) {
	if !k.begun {
		return nil, fail(C.LLM_CACHE_E_ORDER, "no step has begun")
	}
	n := len(k.slots) / k.groups
	return k.slots[int(k.groupOf[layer])*n:][:n], nil
}

//export llm_kvstore_write
func llm_kvstore_write(h C.llm_kvstore, layer C.int32_t, keys, values *C.llm_tensor_in, rotation *C.llm_rotation_in) C.int {
	return stores.use(h, func(k *store) error {
		c, err := k.layer(layer)
		if err != nil {
			return err
		}
		slots, err := k.slotsOf(layer)
		if err != nil {
			return err
		}
		var s spans
		t, err := tokensOf(&s, c, keys, values, slots, rotation)
		if err != nil {
			return err
		}
		return k.s.Write(int(layer), t)
	})
}

//export llm_kvstore_attend
func llm_kvstore_attend(h C.llm_kvstore, layer, heads C.int32_t, queries, outputs *C.llm_tensor_in, options *C.llm_attention_options_in) C.int {
	return stores.use(h, func(k *store) error {
		c, err := k.layer(layer)
		if err != nil {
			return err
		}
		if _, err := k.slotsOf(layer); err != nil {
			return err
		}
		var s spans
		b := &attention.Batch{QueryStart: k.requests.Starts, SeqLens: k.requests.Lens}
		b.BlockTables, b.TableStride = k.requests.Tables(int(k.groupOf[layer]))
		if err := queriesOf(&s, c, b, int(heads), queries, outputs); err != nil {
			return err
		}
		if err := optionsOf(&s, c, b, options); err != nil {
			return err
		}
		s.avoid("outputs", b.Out.Data)
		output(&s, "outputs", unsafe.SliceData(b.Out.Data), C.int64_t(len(b.Out.Data)))
		k.avoidStore(&s)
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		return k.machine.runner.Forward(c, b)
	})
}

package main

/*
#include "translate.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/memplan"
)

//export llm_cache_plan_memory
func llm_cache_plan_memory(layers *C.llm_cache_layer_in, n, bytes C.int64_t, blocks C.int32_t, out *C.llm_cache_plan) C.int {
	return status(guarded(func() error {
		if bytes < 0 {
			return fail(C.LLM_CACHE_E_RANGE, "%d bytes: want at least 0", bytes)
		}
		p := planner{blocks: blocks, plans: []plan{{out: out}}}
		if err := p.note(layers, n); err != nil {
			return err
		}
		worker := memplan.Worker{Bytes: int(bytes)}
		for i := range p.layers {
			worker.Layers = append(worker.Layers, i)
		}
		p.workers = []memplan.Worker{worker}
		return p.make()
	}))
}

//export llm_cache_plan_workers
func llm_cache_plan_workers(layers *C.llm_cache_layer_in, n C.int64_t, workers *C.llm_cache_worker_in, count C.int64_t, blocks C.int32_t, plans *C.llm_cache_plan_in) C.int {
	return status(guarded(func() error {
		if count < 1 || count > C.LLM_CACHE_MAX_WORKERS {
			return fail(C.LLM_CACHE_E_RANGE, "%d workers: want 1 to %d", count, C.LLM_CACHE_MAX_WORKERS)
		}
		p := planner{blocks: blocks}
		given := slice(&p.spans, "workers", workers, count)
		for _, t := range slice(&p.spans, "plans", (**C.llm_cache_plan)(unsafe.Pointer(plans)), count) {
			p.plans = append(p.plans, plan{out: t})
		}
		if p.err != nil {
			return p.err
		}
		for i := range given {
			w := memplan.Worker{Bytes: int(given[i].bytes)}
			if w.Bytes < 0 {
				return fail(C.LLM_CACHE_E_RANGE, "worker %d has %d bytes: want at least 0", i, w.Bytes)
			}
			if given[i].layers_len > C.LLM_CACHE_MAX_LAYERS {
				return fail(C.LLM_CACHE_E_RANGE, "worker %d has %d layers: want at most %d", i, given[i].layers_len, C.LLM_CACHE_MAX_LAYERS)
			}
			for _, layer := range slice(&p.spans, "the layers of a worker", (*int32)(given[i].layers), given[i].layers_len) {
				w.Layers = append(w.Layers, int(layer))
			}
			p.workers = append(p.workers, w)
		}
		if err := p.note(layers, n); err != nil {
			return err
		}
		return p.make()
	}))
}

// A planner is a call that plans memory.
type planner struct {
	outputs
	blocks  C.int32_t // number of blocks; 0 means as many as the bytes allow
	layers  []memplan.Layer
	workers []memplan.Worker
	plans   []plan
}

// A plan has a pointer to an llm_cache_plan, a C struct of the caller, and the results that the library writes to this
// struct.
type plan struct {
	out   *C.llm_cache_plan
	input C.llm_cache_plan // its contents before the call
	made  *memplan.Plan

	groups                []memplan.Group
	layerGroups, tensors  []int32 // by layer
	tensorBytes, offsets  []int64
	stride                int // bytes from one block of a packed plan to the next; 0 if the plan is not packed
	requestBytes, longest int // bytes of a request of max_model_len; length of the longest request that fits
}

func (p *planner) note(layers *C.llm_cache_layer_in, n C.int64_t) error {
	if n < 1 || n > C.LLM_CACHE_MAX_LAYERS {
		return fail(C.LLM_CACHE_E_RANGE, "%d layers: want 1 to %d", n, C.LLM_CACHE_MAX_LAYERS)
	}
	if p.blocks < 0 || p.blocks > C.LLM_CACHE_MAX_BLOCKS {
		return fail(C.LLM_CACHE_E_RANGE, "%d blocks: want 0 to %d", p.blocks, C.LLM_CACHE_MAX_BLOCKS)
	}
	for i := range p.plans {
		in := &p.plans[i].input
		if err := readOutStruct(&p.outputs, "plan", p.plans[i].out, C.LLM_PLAN_LEAST, in); err != nil {
			return err
		}
		if b := in.max_concurrent_batches; b < 0 || b > 64 || in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "max_concurrent_batches is %d and reserved %d: want 0 to 64 and 0", b, in.reserved)
		}
		first := p.plans[0].input.flags
		if in.flags&^(C.LLM_CACHE_PLAN_CROSS_LAYERS|C.LLM_CACHE_PLAN_FULL) != 0 || in.flags != first {
			return fail(C.LLM_CACHE_E_RANGE, "plan %d has the flags %#x, and plan 0 %#x: want the same, of LLM_CACHE_PLAN_...", i, in.flags, first)
		}
	}
	p.put()
	given := slice(&p.spans, "layers", layers, n)
	if err := p.checkOverlaps(); err != nil {
		return err
	}
	var err error
	p.layers, err = layersOf(given)
	return err
}

func (p *planner) make() error {
	flags := p.plans[0].input.flags
	made, err := memplan.Make(p.layers, p.workers, memplan.Options{
		Blocks: int(p.blocks), CrossLayers: flags&C.LLM_CACHE_PLAN_CROSS_LAYERS != 0, FullAllocation: flags&C.LLM_CACHE_PLAN_FULL != 0,
	})
	if err != nil {
		return err
	}
	if n := made[0].NumGPUBlocks; n < 2 || n > C.LLM_CACHE_MAX_BLOCKS {
		return fail(C.LLM_CACHE_E_RANGE, "the memory suffices for %d blocks: want 2 to %d", n, C.LLM_CACHE_MAX_BLOCKS)
	}
	if n := len(made[0].Groups); n > C.LLM_CACHE_MAX_GROUPS {
		return fail(C.LLM_CACHE_E_RANGE, "%d groups of layers result: a cache has at most %d", n, C.LLM_CACHE_MAX_GROUPS)
	}
	for i := range p.plans {
		p.plans[i].list(made[i], len(p.layers))
	}
	if err := p.checkLongest(); err != nil {
		return err
	}
	if err := p.fill(p.put); err != nil {
		return err
	}
	p.writeLongest()
	for i := range p.plans {
		t := &p.plans[i]
		t.out.num_gpu_blocks = C.int32_t(t.made.NumGPUBlocks)
		if t.input.size > C.LLM_PLAN_PACKED { // it has the field
			t.out.block_stride = C.int64_t(t.stride)
		}
	}
	return nil
}

// checkLongest computes the length of the longest request that fits into each plan. If one of the lengths is below
// max_model_len, checkLongest writes all lengths to C's plans and returns an error.
func (p *planner) checkLongest() error {
	var small error
	for i := range p.plans {
		t := &p.plans[i]
		maxModelLen, inFlight := int(t.input.max_model_len), int(t.input.max_in_flight_tokens)
		switch {
		case t.input.size < C.LLM_PLAN_PACKED:
			continue
		case maxModelLen < 0 || maxModelLen > C.LLM_CACHE_MAX_MODEL_LEN || inFlight < 0 || inFlight > 1<<30:
			return fail(C.LLM_CACHE_E_RANGE, "max_model_len is %d and max_in_flight_tokens %d: want 0 to %d and 0 to %d",
				maxModelLen, inFlight, C.LLM_CACHE_MAX_MODEL_LEN, 1<<30)
		case maxModelLen == 0:
			continue
		case inFlight == 0:
			inFlight = maxModelLen
		}
		var err error
		if t.longest, err = t.made.LongestModelLen(maxModelLen, inFlight, max(int(t.input.max_concurrent_batches), 1)); err != nil {
			return err
		}
		t.requestBytes = t.made.BytesFor(maxModelLen, inFlight)
		if err := t.made.CheckModelLen(maxModelLen, inFlight, t.longest); err != nil && small == nil {
			small = fail(C.LLM_CACHE_E_MEMORY, "plan %d: %v", i, err)
		}
	}
	if small != nil {
		p.writeLongest()
	}
	return small
}

func (p *planner) writeLongest() {
	for i := range p.plans {
		if t := &p.plans[i]; t.input.size >= C.LLM_PLAN_PACKED {
			t.out.request_bytes, t.out.longest = C.int64_t(t.requestBytes), C.int32_t(t.longest)
		}
	}
}

// list sets the arrays of a plan for n layers. The entries for layers of other workers are -1.
func (t *plan) list(made *memplan.Plan, n int) {
	t.made, t.groups = made, made.Groups
	t.layerGroups, t.tensors = slices.Repeat([]int32{-1}, n), slices.Repeat([]int32{-1}, n)
	for i, g := range made.Groups {
		for _, layer := range g.Layers {
			t.layerGroups[layer] = int32(i)
		}
	}
	if len(made.Tensors) > 0 && made.Tensors[0].Stride > 0 {
		t.stride = made.Tensors[0].Stride
		t.offsets = slices.Repeat([]int64{-1}, n)
	}
	for i, tensor := range made.Tensors {
		if t.stride > 0 && i > 0 {
			i = 0 // all are views of one tensor
		} else {
			t.tensorBytes = append(t.tensorBytes, int64(tensor.Bytes))
		}
		for _, layer := range tensor.Layers {
			t.tensors[layer] = int32(i)
			if t.stride > 0 {
				t.offsets[layer] = int64(tensor.Offset)
			}
		}
	}
}

func (p *planner) put() {
	for i := range p.plans {
		t := &p.plans[i]
		p.end = uintptr(unsafe.Pointer(t.out)) + uintptr(t.input.size)
		put(&p.outputs, "groups", &t.out.groups.at, t.groups, func(g *memplan.Group) C.llm_cache_group {
			return C.llm_cache_group{
				kind: C.int32_t(g.Kind), block_size: C.int32_t(g.BlockSize), window: C.int32_t(g.Window), retained: C.int32_t(g.Retained),
				chunk: C.int32_t(g.Chunk), num_speculative_blocks: C.int32_t(g.NumSpeculativeBlocks),
				flags: flag(g.Align)*C.LLM_CACHE_GROUP_ALIGN | flag(g.Eagle)*C.LLM_CACHE_GROUP_EAGLE,
			}
		})
		putSlice(&p.outputs, "layer_groups", &t.out.layer_groups.at, t.layerGroups)
		putSlice(&p.outputs, "layer_tensors", &t.out.layer_tensors.at, t.tensors)
		putSlice(&p.outputs, "tensor_bytes", &t.out.tensor_bytes.at, t.tensorBytes)
		putSlice(&p.outputs, "layer_offsets", &t.out.layer_offsets.at, t.offsets)
	}
}

// layersOf converts layers. It refuses numbers so large that a product of them could overflow.
func layersOf(given []C.llm_cache_layer_in) ([]memplan.Layer, error) {
	const maxNumber, maxElement, maxState = 1 << 14, 16, 1 << 44
	var list []memplan.Layer
	for i := range given {
		l := &given[i]
		const known = C.LLM_CACHE_GROUP_ALIGN | C.LLM_CACHE_GROUP_EAGLE | C.LLM_CACHE_LAYER_KEYS_ONLY |
			C.LLM_CACHE_LAYER_STRIDED | C.LLM_CACHE_LAYER_PAGE | C.LLM_CACHE_LAYER_HIDDEN
		switch {
		case l.kind < C.LLM_CACHE_FULL || l.kind > C.LLM_CACHE_MAMBA:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has the kind %d: want 0 to %d", i, l.kind, C.LLM_CACHE_MAMBA)
		case l.block_size < 1 || l.block_size > C.LLM_CACHE_MAX_BLOCK_SIZE:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has blocks of %d tokens: want 1 to %d", i, l.block_size, C.LLM_CACHE_MAX_BLOCK_SIZE)
		case l.kv_heads < 0 || l.kv_heads > maxNumber || l.head_size < 0 || l.head_size > maxNumber || l.element_bytes < 0 || l.element_bytes > maxElement:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has %d heads of %d numbers of %d bytes: want at most %d, %d and %d",
				i, l.kv_heads, l.head_size, l.element_bytes, maxNumber, maxNumber, maxElement)
		case l.state_bytes < 0 || l.state_bytes > maxState:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has states of %d bytes: want at most %d", i, l.state_bytes, maxState)
		case l.num_speculative_blocks > C.LLM_CACHE_MAX_BLOCK_SIZE:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has %d speculative blocks: want at most %d", i, l.num_speculative_blocks, C.LLM_CACHE_MAX_BLOCK_SIZE)
		case l.flags&C.LLM_CACHE_LAYER_PAGE != 0 && l.state_bytes == 0:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has a page of 0 bytes", i)
		case l.flags&^known != 0:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has the flags %#x", i, l.flags)
		}
		made := memplan.Layer{
			Group: kvcache.Group{
				Kind: kvcache.Kind(l.kind), BlockSize: int(l.block_size), Window: int(l.window), Retained: int(l.retained),
				Chunk: int(l.chunk), NumSpeculativeBlocks: int(l.num_speculative_blocks),
				Align: l.flags&C.LLM_CACHE_GROUP_ALIGN != 0, Eagle: l.flags&C.LLM_CACHE_GROUP_EAGLE != 0,
			},
			KVHeads: int(l.kv_heads), HeadSize: int(l.head_size), ElementBytes: int(l.element_bytes), StateBytes: int(l.state_bytes),
			KeysOnly: l.flags&C.LLM_CACHE_LAYER_KEYS_ONLY != 0, Strided: l.flags&C.LLM_CACHE_LAYER_STRIDED != 0,
			Hidden: l.flags&C.LLM_CACHE_LAYER_HIDDEN != 0,
		}
		if l.flags&C.LLM_CACHE_LAYER_PAGE != 0 {
			made.Page, made.StateBytes = made.StateBytes, 0
		}
		list = append(list, made)
	}
	return list, nil
}

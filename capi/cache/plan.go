package main

/*
#include "translate.h"
*/
import "C"

import (
	"unsafe"

	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/memplan"
)

//export llm_cache_plan_memory
func llm_cache_plan_memory(layers *C.llm_cache_layer_in, n, bytes C.int64_t, blocks C.int32_t, plan *C.llm_cache_plan) (result C.int) {
	defer func() {
		if p := recover(); p != nil {
			result = status(internal(p))
		}
	}()
	return status(planMemory(layers, n, bytes, blocks, plan))
}

func planMemory(layers *C.llm_cache_layer_in, n, bytes C.int64_t, blocks C.int32_t, t *C.llm_cache_plan) error {
	if bytes < 0 {
		return fail(C.LLM_CACHE_E_RANGE, "%d bytes: want at least 0", bytes)
	}
	p := planner{blocks: blocks, plans: []*C.llm_cache_plan{t}}
	if err := p.note(layers, n); err != nil {
		return err
	}
	worker := memplan.Worker{Bytes: int(bytes)}
	for i := range p.layers {
		worker.Layers = append(worker.Layers, i)
	}
	p.workers = []memplan.Worker{worker}
	return p.make()
}

//export llm_cache_plan_workers
func llm_cache_plan_workers(layers *C.llm_cache_layer_in, n C.int64_t, workers *C.llm_cache_worker_in, most C.int64_t, blocks C.int32_t, plans *C.llm_cache_plan_in) (result C.int) {
	defer func() {
		if p := recover(); p != nil {
			result = status(internal(p))
		}
	}()
	return status(planWorkers(layers, n, workers, most, blocks, plans))
}

func planWorkers(layers *C.llm_cache_layer_in, n C.int64_t, workers *C.llm_cache_worker_in, most C.int64_t, blocks C.int32_t, plans *C.llm_cache_plan_in) error {
	if most < 1 || most > C.LLM_CACHE_MAX_WORKERS {
		return fail(C.LLM_CACHE_E_RANGE, "%d workers: want 1 to %d", most, C.LLM_CACHE_MAX_WORKERS)
	}
	p := planner{blocks: blocks}
	given := slice(&p.spans, "workers", workers, most)
	p.plans = append(p.plans, slice(&p.spans, "plans", (**C.llm_cache_plan)(unsafe.Pointer(plans)), most)...)
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
}

// A planner is a call that plans memory.
type planner struct {
	outputs
	blocks  C.int32_t // to use instead of what the bytes suffice for; 0: none
	layers  []memplan.Layer
	workers []memplan.Worker
	plans   []*C.llm_cache_plan // as given
	in      []C.llm_cache_plan  // what they said before
}

// note checks the memory of the plans and the layers.
func (p *planner) note(layers *C.llm_cache_layer_in, n C.int64_t) error {
	if n < 1 || n > C.LLM_CACHE_MAX_LAYERS {
		return fail(C.LLM_CACHE_E_RANGE, "%d layers: want 1 to %d", n, C.LLM_CACHE_MAX_LAYERS)
	}
	if p.blocks < 0 || p.blocks > C.LLM_CACHE_MAX_BLOCKS {
		return fail(C.LLM_CACHE_E_RANGE, "%d blocks: want 0 to %d", p.blocks, C.LLM_CACHE_MAX_BLOCKS)
	}
	p.in = make([]C.llm_cache_plan, len(p.plans))
	for i, t := range p.plans {
		if err := filled(&p.spans, "plan", t, C.LLM_PLAN_LEAST, &p.in[i]); err != nil {
			return err
		}
		in := &p.in[i]
		output(&p.spans, "groups", in.groups.at, in.groups.cap)
		output(&p.spans, "layer_groups", in.layer_groups.at, in.layer_groups.cap)
		output(&p.spans, "layer_tensors", in.layer_tensors.at, in.layer_tensors.cap)
		output(&p.spans, "tensor_bytes", in.tensor_bytes.at, in.tensor_bytes.cap)
		output(&p.spans, "layer_offsets", in.layer_offsets.at, in.layer_offsets.cap)
		if b := in.max_concurrent_batches; b < 0 || b > 64 || in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "max_concurrent_batches is %d and reserved %d: want 0 to 64 and 0", b, in.reserved)
		}
		if in.flags&^(C.LLM_CACHE_PLAN_CROSS_LAYERS|C.LLM_CACHE_PLAN_FULL) != 0 || in.flags != p.in[0].flags {
			return fail(C.LLM_CACHE_E_RANGE, "plan %d has the flags %#x, and plan 0 %#x: want the same, of LLM_CACHE_PLAN_...", i, in.flags, p.in[0].flags)
		}
	}
	given := slice(&p.spans, "layers", layers, n)
	if err := p.apart(); err != nil {
		return err
	}
	var err error
	p.layers, err = layersOf(given)
	return err
}

func (p *planner) make() error {
	made, err := memplan.Make(p.layers, p.workers, memplan.Options{
		Blocks: int(p.blocks), CrossLayers: p.in[0].flags&C.LLM_CACHE_PLAN_CROSS_LAYERS != 0, FullAllocation: p.in[0].flags&C.LLM_CACHE_PLAN_FULL != 0,
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
	longest, err := p.longest(made)
	if err != nil {
		return err
	}
	for i, t := range p.plans {
		if err := p.needs(t, &p.in[i], made[i]); err != nil {
			return err
		}
	}
	if err := p.fits(); err != nil {
		return err
	}
	p.writeLongest(longest)
	for i, t := range p.plans {
		writePlan(t, made[i])
		if p.in[i].size >= C.sizeof_llm_cache_plan {
			writePacking(t, made[i])
		}
	}
	return nil
}

// needs says how many entries each array of a plan needs.
func (p *planner) needs(t, in *C.llm_cache_plan, made *memplan.Plan) error {
	tensors, offsets := len(made.Tensors), 0
	if stride(made) > 0 {
		tensors, offsets = 1, len(p.layers)
		if in.size < C.sizeof_llm_cache_plan {
			return fail(C.LLM_CACHE_E_SIZE, "the plan ends before its fields block_stride and layer_offsets, and is packed")
		}
	}
	p.need(t.groups.cap, &t.groups.len, len(made.Groups))
	p.need(t.layer_groups.cap, &t.layer_groups.len, len(p.layers))
	p.need(t.layer_tensors.cap, &t.layer_tensors.len, len(p.layers))
	p.need(t.tensor_bytes.cap, &t.tensor_bytes.len, tensors)
	if in.size >= C.sizeof_llm_cache_plan {
		p.need(t.layer_offsets.cap, &t.layer_offsets.len, offsets)
	}
	return nil
}

// stride is from one block of a packed plan to the next; 0 if it is not packed.
func stride(made *memplan.Plan) int {
	if len(made.Tensors) == 0 {
		return 0
	}
	return made.Tensors[0].Stride
}

// A longestRequest is what a plan says of the longest request.
type longestRequest struct {
	bytes  int
	tokens int
}

// longest refuses plans in which one request of the longest length does not fit. Then it
// says in all of them what does.
func (p *planner) longest(made []*memplan.Plan) ([]longestRequest, error) {
	found := make([]longestRequest, len(made))
	var small error
	for i := range made {
		in := &p.in[i]
		most, inFlight := int(in.max_model_len), int(in.max_in_flight_tokens)
		switch {
		case in.size < C.LLM_PLAN_PACKED:
			continue
		case most < 0 || most > C.LLM_CACHE_MAX_MODEL_LEN || inFlight < 0 || inFlight > 1<<30:
			return nil, fail(C.LLM_CACHE_E_RANGE, "max_model_len is %d and max_in_flight_tokens %d: want 0 to %d and 0 to %d",
				most, inFlight, C.LLM_CACHE_MAX_MODEL_LEN, 1<<30)
		case most == 0:
			continue
		case inFlight == 0:
			inFlight = most
		}
		tokens, err := made[i].LongestModelLen(most, inFlight, max(int(in.max_concurrent_batches), 1))
		if err != nil {
			return nil, err
		}
		found[i] = longestRequest{made[i].BytesFor(most, inFlight), tokens}
		if err := made[i].CheckModelLen(most, inFlight, tokens); err != nil && small == nil {
			small = fail(C.LLM_CACHE_E_MEMORY, "plan %d: %v", i, err)
		}
	}
	if small != nil {
		p.writeLongest(found)
	}
	return found, small
}

func (p *planner) writeLongest(found []longestRequest) {
	for i, t := range p.plans {
		if p.in[i].size >= C.LLM_PLAN_PACKED {
			t.request_bytes, t.longest = C.int64_t(found[i].bytes), C.int32_t(found[i].tokens)
		}
	}
}

// layersOf keeps numbers so small that no product of them overflows.
func layersOf(given []C.llm_cache_layer_in) ([]memplan.Layer, error) {
	const most, bytes, state = 1 << 14, 16, 1 << 44
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
		case l.kv_heads < 0 || l.kv_heads > most || l.head_size < 0 || l.head_size > most || l.element_bytes < 0 || l.element_bytes > bytes:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has %d heads of %d numbers of %d bytes: want at most %d, %d and %d",
				i, l.kv_heads, l.head_size, l.element_bytes, most, most, bytes)
		case l.state_bytes < 0 || l.state_bytes > state:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has states of %d bytes: want at most %d", i, l.state_bytes, state)
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

func writePlan(t *C.llm_cache_plan, p *memplan.Plan) {
	t.num_gpu_blocks = C.int32_t(p.NumGPUBlocks)
	groups := room(t.groups.at, t.groups.len)
	layerGroups := room((*int32)(t.layer_groups.at), t.layer_groups.len)
	tensors := room((*int32)(t.layer_tensors.at), t.layer_tensors.len)
	for i := range layerGroups {
		layerGroups[i], tensors[i] = -1, -1 // another worker's
	}
	for i, g := range p.Groups {
		groups[i] = C.llm_cache_group{
			kind: C.int32_t(g.Kind), block_size: C.int32_t(g.BlockSize), window: C.int32_t(g.Window), retained: C.int32_t(g.Retained),
			chunk: C.int32_t(g.Chunk), num_speculative_blocks: C.int32_t(g.NumSpeculativeBlocks),
		}
		if g.Align {
			groups[i].flags |= C.LLM_CACHE_GROUP_ALIGN
		}
		if g.Eagle {
			groups[i].flags |= C.LLM_CACHE_GROUP_EAGLE
		}
		for _, layer := range g.Layers {
			layerGroups[layer] = int32(i)
		}
	}
	sizes := room((*int64)(t.tensor_bytes.at), t.tensor_bytes.len)
	for i, tensor := range p.Tensors {
		if tensor.Stride > 0 {
			i = 0 // all are views of one
		}
		sizes[i] = int64(tensor.Bytes)
		for _, layer := range tensor.Layers {
			tensors[layer] = int32(i)
		}
	}
}

// writePacking says where layers begin in a block, if the plan is packed.
func writePacking(t *C.llm_cache_plan, p *memplan.Plan) {
	t.block_stride = C.int64_t(stride(p))
	offsets := room((*int64)(t.layer_offsets.at), t.layer_offsets.len)
	for i := range offsets {
		offsets[i] = -1
	}
	for _, tensor := range p.Tensors {
		if tensor.Stride == 0 {
			break
		}
		for _, layer := range tensor.Layers {
			offsets[layer] = int64(tensor.Offset)
		}
	}
}

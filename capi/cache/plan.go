package main

/*
#include "translate.h"
*/
import "C"

import (
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
	var o outputs
	var in C.llm_cache_plan
	if err := filled(&o.spans, "plan", t, C.LLM_PLAN_LEAST, &in); err != nil {
		return err
	}
	if n < 1 || n > C.LLM_CACHE_MAX_LAYERS {
		return fail(C.LLM_CACHE_E_RANGE, "%d layers: want 1 to %d", n, C.LLM_CACHE_MAX_LAYERS)
	}
	if bytes < 0 || blocks < 0 || blocks > C.LLM_CACHE_MAX_BLOCKS {
		return fail(C.LLM_CACHE_E_RANGE, "%d bytes and %d blocks: want at least 0, and at most %d blocks", bytes, blocks, C.LLM_CACHE_MAX_BLOCKS)
	}
	given := slice(&o.spans, "layers", layers, n)
	output(&o.spans, "groups", in.groups.at, in.groups.cap)
	output(&o.spans, "layer_groups", in.layer_groups.at, in.layer_groups.cap)
	output(&o.spans, "layer_tensors", in.layer_tensors.at, in.layer_tensors.cap)
	output(&o.spans, "tensor_bytes", in.tensor_bytes.at, in.tensor_bytes.cap)
	if err := o.apart(); err != nil {
		return err
	}
	list, err := layersOf(given)
	if err != nil {
		return err
	}
	p, err := memplan.Make(list, int(bytes), int(blocks))
	if err != nil {
		return err
	}
	if p.NumGPUBlocks < 2 || p.NumGPUBlocks > C.LLM_CACHE_MAX_BLOCKS {
		return fail(C.LLM_CACHE_E_RANGE, "%d bytes are %d blocks: want 2 to %d", bytes, p.NumGPUBlocks, C.LLM_CACHE_MAX_BLOCKS)
	}
	if err := checkLongest(&in, t, p); err != nil {
		return err
	}
	o.need(t.groups.cap, &t.groups.len, len(p.Groups))
	o.need(t.layer_groups.cap, &t.layer_groups.len, len(list))
	o.need(t.layer_tensors.cap, &t.layer_tensors.len, len(list))
	o.need(t.tensor_bytes.cap, &t.tensor_bytes.len, len(p.Tensors))
	if err := o.fits(); err != nil {
		return err
	}
	writePlan(t, p)
	return nil
}

// checkLongest refuses a plan in which one request of the longest length does not fit.
func checkLongest(in, t *C.llm_cache_plan, p *memplan.Plan) error {
	most, inFlight := int(in.max_model_len), int(in.max_in_flight_tokens)
	switch {
	case in.size < C.sizeof_llm_cache_plan:
		return nil
	case most < 0 || most > C.LLM_CACHE_MAX_MODEL_LEN || inFlight < 0 || inFlight > 1<<30 || in.reserved != 0:
		return fail(C.LLM_CACHE_E_RANGE, "max_model_len is %d, max_in_flight_tokens %d, reserved %d: want 0 to %d, 0 to %d and 0",
			most, inFlight, int(in.reserved), C.LLM_CACHE_MAX_MODEL_LEN, 1<<30)
	case most == 0:
		t.request_bytes, t.longest = 0, 0
		return nil
	case inFlight == 0:
		inFlight = most
	}
	t.request_bytes, t.longest = C.int64_t(p.BytesFor(most, inFlight)), C.int32_t(p.LongestModelLen(most, inFlight))
	if err := p.CheckModelLen(most, inFlight); err != nil {
		return fail(C.LLM_CACHE_E_MEMORY, "%v", err)
	}
	return nil
}

// layersOf keeps numbers so small that no product of them overflows.
func layersOf(given []C.llm_cache_layer_in) ([]memplan.Layer, error) {
	const most, bytes, state = 1 << 14, 16, 1 << 44
	var list []memplan.Layer
	for i := range given {
		l := &given[i]
		const known = C.LLM_CACHE_GROUP_ALIGN | C.LLM_CACHE_GROUP_EAGLE | C.LLM_CACHE_LAYER_KEYS_ONLY | C.LLM_CACHE_LAYER_STRIDED
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
		case l.flags&^known != 0:
			return nil, fail(C.LLM_CACHE_E_RANGE, "layer %d has the flags %#x", i, l.flags)
		}
		list = append(list, memplan.Layer{
			Group: kvcache.Group{
				Kind: kvcache.Kind(l.kind), BlockSize: int(l.block_size), Window: int(l.window), Retained: int(l.retained),
				Chunk: int(l.chunk), NumSpeculativeBlocks: int(l.num_speculative_blocks),
				Align: l.flags&C.LLM_CACHE_GROUP_ALIGN != 0, Eagle: l.flags&C.LLM_CACHE_GROUP_EAGLE != 0,
			},
			KVHeads: int(l.kv_heads), HeadSize: int(l.head_size), ElementBytes: int(l.element_bytes), StateBytes: int(l.state_bytes),
			KeysOnly: l.flags&C.LLM_CACHE_LAYER_KEYS_ONLY != 0, Strided: l.flags&C.LLM_CACHE_LAYER_STRIDED != 0,
		})
	}
	return list, nil
}

func writePlan(t *C.llm_cache_plan, p *memplan.Plan) {
	t.num_gpu_blocks = C.int32_t(p.NumGPUBlocks)
	groups := room(t.groups.at, t.groups.len)
	layerGroups := room((*int32)(t.layer_groups.at), t.layer_groups.len)
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
	tensors := room((*int32)(t.layer_tensors.at), t.layer_tensors.len)
	sizes := room((*int64)(t.tensor_bytes.at), t.tensor_bytes.len)
	for i, tensor := range p.Tensors {
		sizes[i] = int64(tensor.Bytes)
		for _, layer := range tensor.Layers {
			tensors[layer] = int32(i)
		}
	}
}

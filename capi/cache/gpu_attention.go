package main

/*
#include "translate.h"
*/
import "C"

import (
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// A gpuAttention is the object of an llm_cuda_attention, a handle of llm_cuda.h.
type gpuAttention struct {
	gpu  *gpu
	call kernels.PagedAttention // the fields that do not change from step to step, and the plan of the last step
}

var attentions = objects[gpuAttention]{name: "attention"}

//export llm_cuda_attention_open
func llm_cuda_attention_open(h C.llm_cuda, config *C.llm_cuda_attention_config_in, opened *C.llm_cuda_attention) C.int {
	return gpus.use(h, func(g *gpu) error {
		var s spans
		var in C.llm_cuda_attention_config
		if err := readStruct(&s, "config", config, C.sizeof_llm_cuda_attention_config, &in); err != nil {
			return err
		}
		noteOne(&s, "attention", opened)
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		kind, cache, err := cudaTypes(in.dtype, in.cache_dtype)
		if err != nil {
			return err
		}
		a := &gpuAttention{gpu: g, call: kernels.PagedAttention{
			AttentionShape: kernels.AttentionShape{Type: kind, Cache: cache, HeadSize: int(in.head_size), Heads: int(in.heads), KVHeads: int(in.kv_heads), BlockSize: int(in.block_size)},
			Scale:          float32(in.scale), SoftCap: float32(in.soft_cap), Window: int(in.window), Slopes: cuda.Pointer(in.alibi), Sinks: cuda.Pointer(in.sinks),
		}}
		if in.scale == 0 {
			a.call.Scale = defaultScale(a.call.HeadSize)
		}
		if in.window < 0 {
			return fail(C.LLM_CACHE_E_RANGE, "window is %d: want 0 or more", in.window)
		}
		if _, err := a.call.AttentionShape.Plan(g.context.Device(), []int32{0}, nil, 0); err != nil { // checks the shape
			return gpuError(err)
		}
		*opened = attentions.add(a)
		g.attentions.Add(1)
		return nil
	})
}

//export llm_cuda_attention_close
func llm_cuda_attention_close(h C.llm_cuda_attention) C.int {
	a, err := attentions.remove(h)
	if err == nil {
		a.gpu.attentions.Add(-1)
	}
	return status(err)
}

//export llm_cuda_attention_plan
func llm_cuda_attention_plan(h C.llm_cuda_attention, queryStart, seqLens *C.llm_i32_in, seqs C.int64_t, plan *C.llm_cuda_plan) C.int {
	return attentions.use(h, func(a *gpuAttention) error {
		var o outputs
		var in C.llm_cuda_plan
		if err := readOutStruct(&o, "plan", plan, C.sizeof_llm_cuda_plan, &in); err != nil {
			return err
		}
		if in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "reserved of plan is %d: want 0", in.reserved)
		}
		if _, err := countOf("seqs", seqs); err != nil {
			return err
		}
		var made kernels.AttentionPlan
		put := func() { putSlice(&o, "entries", &plan.entries.at, made.Entries) }
		put()
		starts, lengths := slice(&o.spans, "query_start", (*int32)(queryStart), seqs+1), slice(&o.spans, "seq_lens", (*int32)(seqLens), seqs)
		err := o.checkOverlaps()
		if err != nil {
			return err
		}
		if made, err = a.call.AttentionShape.Plan(a.gpu.context.Device(), starts, lengths, a.call.Window); err != nil {
			return gpuError(err)
		}
		if err := o.fill(put); err != nil {
			return err
		}
		plan.part_bytes, a.call.Plan = C.int64_t(made.PartBytes), made
		return nil
	})
}

//export llm_cuda_attention_run
func llm_cuda_attention_run(h C.llm_cuda_attention, batch *C.llm_cuda_batch_in, stream C.llm_cuda_stream) C.int {
	return attentions.use(h, func(a *gpuAttention) error {
		var s spans
		var in C.llm_cuda_batch
		if err := readStruct(&s, "batch", batch, C.sizeof_llm_cuda_batch, &in); err != nil {
			return err
		}
		if in.reserved != 0 || in.queries.stride < 0 || in.outputs.stride < 0 || in.table_stride < 0 || in.table_stride > 1<<31-1 {
			return fail(C.LLM_CACHE_E_RANGE, "strides of queries, outputs and block tables are %d, %d and %d, reserved is %d", in.queries.stride, in.outputs.stride, in.table_stride, in.reserved)
		}
		call := a.call
		if len(call.Plan.Entries) == 0 {
			return nil // no queries, or no plan
		}
		var err error
		for _, part := range []struct {
			name    string
			address C.uint64_t
			dst     *cuda.Pointer
		}{{"queries", in.queries.at, &call.Query}, {"outputs", in.outputs.at, &call.Out}, {"key", in.key, &call.Keys}, {"value", in.value, &call.Values}} {
			if *part.dst, err = address16(part.name, part.address); err != nil {
				return err
			}
		}
		call.QueryStride, call.OutStride, call.TableStride = int(in.queries.stride), int(in.outputs.stride), int(in.table_stride)
		call.Tables, call.SeqLens, call.QueryStart = cuda.Pointer(in.block_tables), cuda.Pointer(in.seq_lens), cuda.Pointer(in.query_start)
		call.Entries, call.Parts = cuda.Pointer(in.entries), cuda.Pointer(in.parts)
		if call.Tables == 0 || call.SeqLens == 0 || call.QueryStart == 0 || call.Entries == 0 || call.Parts == 0 && call.Plan.PartBytes > 0 {
			return fail(C.LLM_CACHE_E_NULL, "block_tables, seq_lens, query_start, entries or parts of batch is 0")
		}
		return a.gpu.launch(call, stream)
	})
}

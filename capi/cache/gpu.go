package main

/*
#include "translate.h"
*/
import "C"

import (
	"errors"
	"sync/atomic"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// A gpu is the object of an llm_cuda, a handle of llm_cuda.h.
type gpu struct {
	context    *cuda.Context
	kernels    *kernels.Set
	attentions atomic.Int64 // open ones
}

var gpus = objects[gpu]{name: "GPU"}

//export llm_cuda_open
func llm_cuda_open(driver *C.llm_char_in, h *C.llm_cuda) C.int {
	return status(guarded(func() error {
		var s spans
		if noteOne(&s, "gpu", h); s.err != nil {
			return s.err
		}
		library := cuda.Library
		if driver != nil {
			var err error
			if library, err = text("driver", (*C.char)(driver)); err != nil {
				return err
			}
		}
		opened, err := cuda.Open(library)
		if err != nil {
			return fail(C.LLM_CACHE_E_GPU, "%v", err)
		}
		g := &gpu{}
		if g.context, err = opened.Current(); err == nil {
			g.kernels, err = kernels.Load(g.context)
		}
		if err != nil {
			return fail(C.LLM_CACHE_E_GPU, "%v", err)
		}
		*h = gpus.add(g)
		return nil
	}))
}

//export llm_cuda_close
func llm_cuda_close(h C.llm_cuda) C.int {
	var open int64
	_ = gpus.find(h, func(g *gpu) error { open = g.attentions.Load(); return nil }) // remove finds errors
	if open > 0 {
		return status(fail(C.LLM_CACHE_E_BUSY, "attentions of the GPU are open: close all %d first", open))
	}
	g, err := gpus.remove(h)
	if err != nil {
		return status(err)
	}
	return status(guarded(func() error { return gpuError(g.kernels.Close()) }))
}

// gpuError gives an error of package cuda or kernels a code: LLM_CACHE_E_GPU for errors of the driver or the GPU,
// LLM_CACHE_E_RANGE for errors about arguments.
func gpuError(err error) error {
	var driver *cuda.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &driver), errors.Is(err, cuda.ErrOldDriver), errors.Is(err, cuda.ErrNoGPU), errors.Is(err, cuda.ErrOldGPU):
		return fail(C.LLM_CACHE_E_GPU, "%v", err)
	}
	return fail(C.LLM_CACHE_E_RANGE, "%v", err)
}

func (g *gpu) launch(kernel interface {
	Launch(*kernels.Set, *cuda.Stream) error
}, stream C.llm_cuda_stream) error {
	return gpuError(kernel.Launch(g.kernels, g.context.StreamOf(uintptr(stream))))
}

// countOf converts n to an int. It returns an error if n cannot be a number of tokens or blocks.
func countOf(name string, n C.int64_t) (int, error) {
	if n < 0 || n > 1<<31-1 {
		return 0, fail(C.LLM_CACHE_E_RANGE, "%s is %d: want 0 to %d", name, n, 1<<31-1)
	}
	return int(n), nil
}

// address16 converts an address on the GPU. It returns an error unless the address is a multiple of 16, as kernels
// need.
func address16(name string, address C.uint64_t) (cuda.Pointer, error) {
	if address == 0 {
		return 0, fail(C.LLM_CACHE_E_NULL, "%s is 0", name)
	}
	if address%16 != 0 {
		return 0, fail(C.LLM_CACHE_E_ALIGN, "%s is not aligned to 16 bytes", name)
	}
	return cuda.Pointer(address), nil
}

//export llm_cuda_write
func llm_cuda_write(h C.llm_cuda, cache *C.llm_cuda_cache_in, keys, values *C.llm_cuda_tensor_in, slots C.uint64_t, n C.int64_t,
	stream C.llm_cuda_stream) C.int {
	return gpus.use(h, func(g *gpu) error {
		var s spans
		var in C.llm_cuda_cache
		if err := readStruct(&s, "cache", cache, C.LLM_CUDA_CACHE_LEAST, &in); err != nil {
			return err
		}
		k, v := slice(&s, "keys", keys, 1), slice(&s, "values", values, 1)
		if s.err != nil {
			return s.err
		}
		if k[0].stride < 0 || v[0].stride < 0 {
			return fail(C.LLM_CACHE_E_RANGE, "the strides of keys and values are %d and %d", k[0].stride, v[0].stride)
		}
		tokens, err := countOf("n", n)
		if err != nil || tokens == 0 {
			return err
		}
		a := kernels.ReshapeAndCache{Slots: cuda.Pointer(slots), Tokens: tokens, KeyHeads: int(in.kv_heads), HeadSize: int(in.head_size), BlockSize: int(in.block_size),
			KeyStride: int(k[0].stride), ValueStride: int(v[0].stride)}
		if in.dtype != 0 || in.cache_dtype != 0 {
			if a.Type, a.Cache, err = cudaTypes(in.dtype, in.cache_dtype); err != nil {
				return err
			}
		}
		for _, part := range []struct {
			name    string
			address C.uint64_t
			dst     *cuda.Pointer
		}{{"key of cache", in.key, &a.KeyCache}, {"value of cache", in.value, &a.ValueCache}, {"keys", k[0].at, &a.Key}, {"values", v[0].at, &a.Value}} {
			if *part.dst, err = address16(part.name, part.address); err != nil {
				return err
			}
		}
		if slots == 0 || slots%8 != 0 {
			return fail(C.LLM_CACHE_E_ALIGN, "slots is %#x: want an address that is a multiple of 8", uint64(slots))
		}
		return g.launch(a, stream)
	})
}

func cudaTypes(dtype, cached C.int32_t) (kernels.Type, kernels.CacheType, error) {
	kinds := map[C.int32_t]kernels.Type{C.LLM_F16: kernels.F16, C.LLM_BF16: kernels.BF16}
	caches := map[C.int32_t]kernels.CacheType{0: kernels.CacheAuto, dtype: kernels.CacheAuto, C.LLM_E4M3: kernels.CacheE4M3, C.LLM_E5M2: kernels.CacheE5M2}
	kind, ok := kinds[dtype]
	if !ok {
		return 0, 0, fail(C.LLM_CACHE_E_RANGE, "dtype is %d: want LLM_F16 (%d) or LLM_BF16 (%d)", dtype, C.LLM_F16, C.LLM_BF16)
	}
	cache, ok := caches[cached]
	if !ok {
		return 0, 0, fail(C.LLM_CACHE_E_RANGE, "cache_dtype is %d: want LLM_E4M3 (%d), LLM_E5M2 (%d), or 0 for dtype", cached, C.LLM_E4M3, C.LLM_E5M2)
	}
	return kind, cache, nil
}

func blocksOf(p *C.llm_cuda_blocks, pairs C.uint64_t, n C.int64_t) (b kernels.Blocks, mapping cuda.Pointer, count int, err error) {
	var s spans
	var in C.llm_cuda_blocks
	if err := readStruct(&s, "blocks", p, C.sizeof_llm_cuda_blocks, &in); err != nil {
		return b, 0, 0, err
	}
	if count, err = countOf("n", n); err != nil {
		return b, 0, 0, err
	}
	if in.at == 0 || in.at%8 != 0 || count > 0 && (pairs == 0 || pairs%4 != 0) {
		return b, 0, 0, fail(C.LLM_CACHE_E_ALIGN, "at of blocks is %#x and pairs is %#x: want addresses that are multiples of 8 and of 4", uint64(in.at), uint64(pairs))
	}
	return kernels.Blocks{Arrays: cuda.Pointer(in.at), Count: int(in.arrays), BlockBytes: int(in.block_bytes)}, cuda.Pointer(pairs), count, nil
}

//export llm_cuda_copy
func llm_cuda_copy(h C.llm_cuda, blocks *C.llm_cuda_blocks_in, pairs C.uint64_t, n C.int64_t, stream C.llm_cuda_stream) C.int {
	return gpus.use(h, func(g *gpu) error {
		b, mapping, count, err := blocksOf(blocks, pairs, n)
		if err != nil {
			return err
		}
		return g.launch(kernels.CopyBlocks{Blocks: b, Mapping: mapping, Pairs: count}, stream)
	})
}

//export llm_cuda_swap_out
func llm_cuda_swap_out(h C.llm_cuda, blocks *C.llm_cuda_blocks_in, host, pairs C.uint64_t, n C.int64_t, stream C.llm_cuda_stream) C.int {
	return gpus.use(h, func(g *gpu) error { return g.swap(blocks, host, pairs, n, stream, false) })
}

//export llm_cuda_swap_in
func llm_cuda_swap_in(h C.llm_cuda, blocks *C.llm_cuda_blocks_in, host, pairs C.uint64_t, n C.int64_t, stream C.llm_cuda_stream) C.int {
	return gpus.use(h, func(g *gpu) error { return g.swap(blocks, host, pairs, n, stream, true) })
}

func (g *gpu) swap(blocks *C.llm_cuda_blocks, host, pairs C.uint64_t, n C.int64_t, stream C.llm_cuda_stream, swapIn bool) error {
	b, mapping, count, err := blocksOf(blocks, pairs, n)
	if err != nil {
		return err
	}
	hostAddress, err := address16("host", host)
	if err != nil {
		return err
	}
	return g.launch(kernels.SwapBlocks{Blocks: b, Host: hostAddress, Mapping: mapping, Pairs: count, In: swapIn}, stream)
}

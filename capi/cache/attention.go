package main

/*
#include "translate.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

//export llm_attention_describe
func llm_attention_describe(cache *C.llm_attention_cache, memory unsafe.Pointer, bytes C.int64_t) C.int {
	return status(guarded(func() error {
		var s spans
		var in C.llm_attention_cache
		if err := readStruct(&s, "cache", cache, C.sizeof_llm_attention_cache, &in); err != nil {
			return err
		}
		shape, err := shapeOf(in.dtype, in.layout, in.block_size, in.kv_heads, in.head_size)
		if err != nil {
			return err
		}
		if in.blocks < 1 || in.reserved != 0 {
			return fail(C.LLM_CACHE_E_RANGE, "blocks is %d, reserved is %d: want at least 1, and 0", in.blocks, in.reserved)
		}
		if err := attention.CheckScales(float32(in.key_scale), float32(in.value_scale)); err != nil {
			return err
		}
		if int64(in.blocks) > math.MaxInt64/int64(shape.BlockBytes()) {
			return fail(C.LLM_CACHE_E_RANGE, "%d blocks of %d bytes", in.blocks, shape.BlockBytes())
		}
		need := int64(shape.BlockBytes()) * int64(in.blocks)
		if memory == nil {
			cache.key_bytes = C.int64_t(need)
			return nil
		}
		output(&s, "memory", (*byte)(memory), bytes)
		if s.err == nil && uintptr(memory)%64 != 0 {
			return fail(C.LLM_CACHE_E_ALIGN, "memory is not aligned to 64 bytes")
		}
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		if int64(bytes) < need {
			return fail(C.LLM_CACHE_E_RANGE, "%d blocks take %d bytes, but memory has %d", in.blocks, need, bytes)
		}
		c, err := attention.NewCache(shape, unsafe.Slice((*byte)(memory), need))
		if err != nil {
			return err
		}
		fillIn(cache, &c)
		return nil
	}))
}

// shapeOf returns the shape of a cache, or an error if package attention does not support it.
func shapeOf(dtype, layout, blockSize, kvHeads, headSize C.int32_t) (attention.Shape, error) {
	if dtype < 0 || dtype > C.LLM_INT8 || layout < 0 || layout > C.LLM_LAYOUT_FLASH {
		return attention.Shape{}, fail(C.LLM_CACHE_E_RANGE, "dtype is %d, layout %d; want at most LLM_INT8 (%d) and LLM_LAYOUT_FLASH (%d)",
			dtype, layout, C.LLM_INT8, C.LLM_LAYOUT_FLASH)
	}
	s := attention.Shape{
		DType: attention.DType(dtype), Layout: attention.Layout(layout),
		BlockSize: int(blockSize), NumKVHeads: int(kvHeads), HeadSize: int(headSize),
	}
	return s, s.Check()
}

func fillIn(out *C.llm_attention_cache, c *attention.Cache) {
	out.blocks, out.block_stride, out.head_stride = C.int32_t(c.NumBlocks), C.int64_t(c.BlockStride), C.int64_t(c.HeadStride)
	out.scale_block_stride, out.scale_head_stride = C.int64_t(c.ScaleBlockStride), C.int64_t(c.ScaleHeadStride)
	out.key, out.key_bytes = address(c.Key)
	out.value, out.value_bytes = address(c.Value)
	out.key_scales, out.key_scales_bytes = address(c.KeyScales)
	out.value_scales, out.value_scales_bytes = address(c.ValueScales)
}

func address(data []byte) (unsafe.Pointer, C.int64_t) {
	return unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data))
}

func cacheOf(s *spans, p *C.llm_attention_cache) (c attention.Cache, err error) {
	var in C.llm_attention_cache
	if err := readStruct(s, "cache", p, C.sizeof_llm_attention_cache, &in); err != nil {
		return c, err
	}
	if in.reserved != 0 {
		return c, fail(C.LLM_CACHE_E_RANGE, "reserved of cache is %d: want 0", in.reserved)
	}
	if c.Shape, err = shapeOf(in.dtype, in.layout, in.block_size, in.kv_heads, in.head_size); err != nil {
		return c, err
	}
	c.NumBlocks, c.BlockStride, c.HeadStride = int(in.blocks), int(in.block_stride), int(in.head_stride)
	c.ScaleBlockStride, c.ScaleHeadStride = int(in.scale_block_stride), int(in.scale_head_stride)
	c.KeyScale, c.ValueScale = float32(in.key_scale), float32(in.value_scale)
	// The parts may alternate in the same memory, block by block, so they are not checked for overlaps with each other.
	parts := [...]struct {
		name  string
		data  unsafe.Pointer
		bytes C.int64_t
		dst   *[]byte
	}{
		{"key", in.key, in.key_bytes, &c.Key}, {"value", in.value, in.value_bytes, &c.Value},
		{"key_scales", in.key_scales, in.key_scales_bytes, &c.KeyScales},
		{"value_scales", in.value_scales, in.value_scales_bytes, &c.ValueScales},
	}
	align := C.int64_t(c.DType.Size())
	for i, part := range parts {
		var local spans
		if i > 1 {
			align = 4
		}
		*part.dst = slice(&local, part.name, (*byte)(part.data), part.bytes)
		if local.err == nil && part.bytes > 0 && uintptr(part.data)%uintptr(align) != 0 {
			local.err = fail(C.LLM_CACHE_E_ALIGN, "%s is not aligned to %d bytes", part.name, align)
		}
		if local.err != nil {
			return c, local.err
		}
	}
	if err := c.Check(); err != nil {
		return c, err
	}
	return c, c.CheckStrides()
}

// tensorOf returns the tensor that p describes, and the number of its rows. Each row has width elements.
func tensorOf(s *spans, name string, p *C.llm_tensor, width int) (t attention.Tensor, rows int, err error) {
	if slice(s, name, p, 1); s.err != nil {
		return t, 0, s.err
	}
	t.DType, t.Stride = attention.DType(p.dtype), int(p.stride)
	switch {
	case p.dtype < 0 || p.dtype > C.LLM_BF16:
		return t, 0, fail(C.LLM_CACHE_E_RANGE, "the dtype of %s is %d; it must be LLM_F32 (0), LLM_F16 (1) or LLM_BF16 (2)", name, p.dtype)
	case p.reserved != 0:
		return t, 0, fail(C.LLM_CACHE_E_RANGE, "reserved of %s is %d: want 0", name, p.reserved)
	case p.rows < 0 || p.rows > maxEntries || p.stride < 0 || p.stride > maxEntries || p.rows > 0 && p.stride > (1<<50)/p.rows:
		return t, 0, fail(C.LLM_CACHE_E_RANGE, "%s has %d rows, %d elements apart", name, p.rows, p.stride)
	case p.rows == 0:
		return t, 0, nil
	}
	n := (int64(p.rows)-1)*int64(p.stride) + int64(width)
	size := t.DType.Size()
	var local spans
	local.note(name, p.at, n, uintptr(size), uintptr(size))
	if local.err != nil {
		return t, 0, local.err
	}
	t.Data = unsafe.Slice((*byte)(p.at), n*int64(size))
	return t, int(p.rows), nil
}

//export llm_attention_write
func llm_attention_write(cache *C.llm_attention_cache_in, keys, values *C.llm_tensor_in, slots *C.llm_i64_in, n C.int64_t,
	rotation *C.llm_rotation_in, threads C.int32_t) C.int {
	return compute(threads, func(m *computer) error {
		var s spans
		c, err := cacheOf(&s, cache)
		if err != nil {
			return err
		}
		list := slice(&s, "slots", (*int64)(slots), n)
		t, err := tokensOf(&s, &c, keys, values, list, rotation)
		if err != nil {
			return err
		}
		if err := c.CheckApart(); err != nil {
			return err
		}
		return m.writer.Write(&c, t)
	})
}

func tokensOf(s *spans, c *attention.Cache, keys, values *C.llm_tensor, slots []int64, rotation *C.llm_rotation) (*kvstore.Tokens, error) {
	width := c.NumKVHeads * c.HeadSize
	t := &kvstore.Tokens{Slots: slots}
	for _, part := range []struct {
		name string
		src  *C.llm_tensor
		dst  *attention.Tensor
	}{{"keys", keys, &t.Key}, {"values", values, &t.Value}} {
		tensor, rows, err := tensorOf(s, part.name, part.src, width)
		if err != nil {
			return nil, err
		}
		if rows != len(slots) {
			return nil, fail(C.LLM_CACHE_E_RANGE, "%d rows of %s for %d slots", rows, part.name, len(slots))
		}
		*part.dst = tensor
	}
	var err error
	if rotation != nil {
		if t.Rotation, err = rotationOf(s, rotation, len(slots)); err != nil {
			return nil, err
		}
	}
	s.avoidBlocks(c)
	return t, s.checkOverlaps()
}

func (s *spans) avoidBlocks(c *attention.Cache) {
	for _, part := range [...]struct {
		name string
		data []byte
	}{{"key", c.Key}, {"value", c.Value}, {"key_scales", c.KeyScales}, {"value_scales", c.ValueScales}} {
		s.avoid(part.name, part.data)
	}
}

//export llm_attention_copy
func llm_attention_copy(dstCache, srcCache *C.llm_attention_cache_in, pairs *C.llm_kvstore_pair_in, n C.int64_t, threads C.int32_t) C.int {
	return compute(threads, func(m *computer) error {
		var s spans
		list, err := pairsOf(&s, pairs, n, nil)
		if err != nil {
			return err
		}
		dst, src, err := cachesOf(&s, dstCache, srcCache)
		if err != nil {
			return err
		}
		return m.copier.Copy(&dst, &src, list)
	})
}

//export llm_attention_convert
func llm_attention_convert(dstCache, srcCache *C.llm_attention_cache_in) C.int {
	return status(guarded(func() error {
		var s spans
		dst, src, err := cachesOf(&s, dstCache, srcCache)
		if err != nil {
			return err
		}
		return attention.Convert(&dst, &src)
	}))
}

// cachesOf converts the two caches of a call that reads srcCache and writes to dstCache. It returns an error if the
// blocks of dstCache overlap with a range in s. So the ranges of the other parameters must be added to s before
// cachesOf is called.
func cachesOf(s *spans, dstCache, srcCache *C.llm_attention_cache_in) (dst, src attention.Cache, err error) {
	if dst, err = cacheOf(s, dstCache); err != nil {
		return dst, src, err
	}
	if err := dst.CheckApart(); err != nil {
		return dst, src, err
	}
	if src, err = cacheOf(s, srcCache); err != nil {
		return dst, src, err
	}
	s.avoidBlocks(&dst)
	return dst, src, s.checkOverlaps()
}

func rotationOf(s *spans, p *C.llm_rotation, tokens int) (*kvstore.Rotation, error) {
	var in C.llm_rotation
	if err := readStruct(s, "rotation", p, C.sizeof_llm_rotation, &in); err != nil {
		return nil, err
	}
	if in.reserved != 0 || in.interleaved < 0 || in.interleaved > 1 {
		return nil, fail(C.LLM_CACHE_E_RANGE, "interleaved is %d, reserved is %d: want 0 or 1, and 0", in.interleaved, in.reserved)
	}
	return &kvstore.Rotation{
		Positions: slice(s, "positions", (*int32)(in.positions), C.int64_t(tokens)),
		Cos:       slice(s, "cos", (*float32)(in.cos), in.entries), Sin: slice(s, "sin", (*float32)(in.sin), in.entries),
		Size: int(in.rotated), Interleaved: in.interleaved == 1,
	}, nil
}

//export llm_attention_forward
func llm_attention_forward(cache *C.llm_attention_cache_in, batch *C.llm_attention_batch_in, threads C.int32_t) C.int {
	return compute(threads, func(m *computer) error {
		var s spans
		c, err := cacheOf(&s, cache)
		if err != nil {
			return err
		}
		b, err := batchOf(&s, &c, batch)
		if err != nil {
			return err
		}
		return m.runner.Forward(&c, b)
	})
}

func batchOf(s *spans, c *attention.Cache, p *C.llm_attention_batch) (*attention.Batch, error) {
	var in C.llm_attention_batch
	if err := readStruct(s, "batch", p, C.sizeof_llm_attention_batch, &in); err != nil {
		return nil, err
	}
	if in.seqs < 0 || in.seqs > 1<<24 || in.table_stride < 0 || in.table_stride > 1<<24 {
		return nil, fail(C.LLM_CACHE_E_RANGE, "seqs is %d, table_stride is %d: want 0 to %d", in.seqs, in.table_stride, 1<<24)
	}
	b := &attention.Batch{
		QueryStart: slice(s, "query_start", (*int32)(in.query_start), in.seqs+1),
		SeqLens:    slice(s, "seq_lens", (*int32)(in.seq_lens), in.seqs), TableStride: int(in.table_stride),
		BlockTables: slice(s, "block_tables", (*int32)(in.block_tables), in.seqs*in.table_stride),
	}
	if s.err != nil {
		return nil, s.err
	}
	// in.queries and in.outputs are structs in Go's memory, as parts of the copied batch struct. The output tensor is in
	// the caller's memory and cannot overlap with these two structs. So they are added to local and not to s.
	var local spans
	if err := queriesOf(&local, c, b, int(in.heads), &in.queries, &in.outputs); err != nil {
		return nil, err
	}
	if err := optionsOf(s, c, b, in.options); err != nil {
		return nil, err
	}
	s.avoid("outputs", b.Out.Data)
	return b, s.checkOverlaps()
}

// queriesOf sets the queries and outputs of a batch. Both must have one row for each query token.
func queriesOf(s *spans, c *attention.Cache, b *attention.Batch, heads int, queries, outputs *C.llm_tensor) error {
	if heads < 1 || heads > attention.MaxHeads {
		return fail(C.LLM_CACHE_E_RANGE, "%d query heads: want 1 to %d", heads, attention.MaxHeads)
	}
	b.NumHeads = heads
	tokens := int(b.QueryStart[len(b.QueryStart)-1])
	var n, m int
	var err error
	if b.Query, n, err = tensorOf(s, "queries", queries, heads*c.HeadSize); err != nil {
		return err
	}
	if b.Out, m, err = tensorOf(s, "outputs", outputs, heads*c.HeadSize); err != nil {
		return err
	}
	if n != tokens || m != tokens {
		return fail(C.LLM_CACHE_E_RANGE, "%d rows of queries and %d of outputs for %d query tokens", n, m, tokens)
	}
	return nil
}

func optionsOf(s *spans, c *attention.Cache, b *attention.Batch, p *C.llm_attention_options) error {
	b.Scale = defaultScale(c.HeadSize)
	if p == nil {
		return nil
	}
	var in C.llm_attention_options
	if err := readStruct(s, "options", p, C.sizeof_llm_attention_options, &in); err != nil {
		return err
	}
	if in.reserved != [6]C.int32_t{} || in.version < 0 || in.version > 2 {
		return fail(C.LLM_CACHE_E_RANGE, "version is %d, reserved is %v: want 0 to 2, and 0", in.version, in.reserved)
	}
	if in.scale != 0 {
		b.Scale = float32(in.scale)
	}
	b.SoftCap, b.SlidingWindow, b.CommonPrefix = float32(in.soft_cap), int(in.window), int(in.common_prefix)
	b.Version = attention.Version(in.version)
	if in.alibi != nil {
		b.AlibiSlopes = slice(s, "alibi", (*float32)(in.alibi), C.int64_t(b.NumHeads))
	}
	if in.sinks != nil {
		b.Sinks = slice(s, "sinks", (*float32)(in.sinks), C.int64_t(b.NumHeads))
	}
	return s.err
}

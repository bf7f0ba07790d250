package main

/*
#include "translate.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

// A store is the object of a handle of llm_attention.h.
type store struct {
	s        *kvstore.Store
	machine  *computer
	requests *kvstore.Requests
	groupOf  []int32 // by layer
	groups   int

	rows  []kvstore.Row
	gone  []uint64 // requests that have lost their blocks
	slots []int64  // slots of the step's tokens, group by group
	pairs []kvstore.Pair
	begun bool // a step has begun
}

var stores = objects[store]{name: "store"}

func defaultScale(headSize int) float32 { return float32(1 / math.Sqrt(float64(headSize))) }

//export llm_kvstore_open
func llm_kvstore_open(config *C.llm_kvstore_config_in, h *C.llm_kvstore) C.int {
	return status(guarded(func() error { return openStore(config, h) }))
}

func openStore(p *C.llm_kvstore_config, h *C.llm_kvstore) error {
	var s spans
	var in C.llm_kvstore_config
	if err := readStruct(&s, "config", p, C.LLM_KVSTORE_LEAST, &in); err != nil {
		return err
	}
	noteOne(&s, "store", h)
	config, err := storeConfig(&in)
	if err != nil {
		return err
	}
	k := &store{groups: max(1, int(in.groups)), groupOf: make([]int32, in.layers)}
	if in.layer_group != nil {
		copy(k.groupOf, slice(&s, "layer_group", (*int32)(in.layer_group), C.int64_t(in.layers)))
	}
	keyScales, valueScales := layerScales(&s, "key_scales", in.key_scales, in.layers), layerScales(&s, "value_scales", in.value_scales, in.layers)
	if err := s.checkOverlaps(); err != nil {
		return err
	}
	for i, g := range k.groupOf {
		if g < 0 || int(g) >= k.groups {
			return fail(C.LLM_CACHE_E_RANGE, "layer_group of layer %d is %d: there are %d groups", i, g, k.groups)
		}
		if err := attention.CheckScales(keyScales[i], valueScales[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	threads, err := threadCount(in.threads)
	if err != nil {
		return err
	}
	if err := k.openMemory(config, threads); err != nil {
		return err
	}
	for i := range k.groupOf {
		c := k.s.Layer(i)
		c.KeyScale, c.ValueScale = keyScales[i], valueScales[i]
	}
	*h = stores.add(k)
	return nil
}

func storeConfig(config *C.llm_kvstore_config) (c kvstore.Config, err error) {
	if c.Shape, err = shapeOf(config.dtype, config.layout, config.block_size, config.kv_heads, config.head_size); err != nil {
		return c, err
	}
	switch {
	case config.layers < 1 || config.layers > kvstore.MaxLayers:
		return c, fail(C.LLM_CACHE_E_RANGE, "%d layers: want 1 to %d", config.layers, kvstore.MaxLayers)
	case config.groups < 0 || config.groups > C.LLM_CACHE_MAX_GROUPS || config.reserved != 0:
		return c, fail(C.LLM_CACHE_E_RANGE, "%d groups, reserved is %d: want 0 to %d, and 0", config.groups, config.reserved, C.LLM_CACHE_MAX_GROUPS)
	case config.bytes < 0:
		return c, fail(C.LLM_CACHE_E_RANGE, "bytes is %d", config.bytes)
	}
	c.Layers, c.NumBlocks, c.HostBlocks = int(config.layers), int(config.blocks), int(config.host_blocks)
	if config.blocks == 0 {
		if c.NumBlocks = c.BlocksIn(int64(config.bytes)); c.NumBlocks == 0 {
			return c, fail(C.LLM_CACHE_E_RANGE, "blocks is 0 and bytes is %d: one block of all layers takes %d bytes", config.bytes, c.BlockBytes())
		}
	}
	return c, nil
}

// layerScales returns an array of scales, one for each layer. All scales are 0 if values is NULL.
func layerScales(s *spans, name string, values *C.float, layers C.int32_t) []float32 {
	scales := make([]float32, layers)
	if values != nil {
		copy(scales, slice(s, name, (*float32)(values), C.int64_t(layers)))
	}
	return scales
}

func (k *store) openMemory(config kvstore.Config, threads int) error {
	machine, err := newComputer(threads)
	if err != nil {
		return err
	}
	k.machine = machine
	if k.s, err = kvstore.New(config, machine.pool); err != nil {
		machine.pool.Close()
		if errors.Is(err, attention.ErrArgument) {
			return err
		}
		return fail(C.LLM_CACHE_E_MEMORY, "%v", err)
	}
	k.requests = kvstore.NewRequests(k.groups, config.BlockSize, config.NumBlocks)
	return nil
}

//export llm_kvstore_close
func llm_kvstore_close(h C.llm_kvstore) C.int {
	k, err := stores.remove(h)
	if err != nil {
		return status(err)
	}
	k.machine.pool.Close()
	return status(guarded(k.s.Close))
}

//export llm_kvstore_blocks
func llm_kvstore_blocks(h C.llm_kvstore, blocks *C.int32_t) C.int {
	return stores.use(h, func(k *store) error {
		var s spans
		noteOne(&s, "blocks", blocks)
		if err := s.checkOverlaps(); err != nil {
			return err
		}
		*blocks = C.int32_t(k.s.Config().NumBlocks)
		return nil
	})
}

func (k *store) layer(i C.int32_t) (*attention.Cache, error) {
	if i < 0 || int(i) >= len(k.groupOf) {
		return nil, fail(C.LLM_CACHE_E_RANGE, "no layer %d: the store has %d", i, len(k.groupOf))
	}
	return k.s.Layer(int(i)), nil
}

//export llm_kvstore_layer
func llm_kvstore_layer(h C.llm_kvstore, layer C.int32_t, cache *C.llm_attention_cache) C.int {
	return stores.use(h, func(k *store) error {
		c, err := k.layer(layer)
		if err != nil {
			return err
		}
		var s spans
		if _, err := size(&s, "cache", cache, C.sizeof_llm_attention_cache); err != nil {
			return err
		}
		cache.dtype, cache.layout, cache.block_size = C.int32_t(c.DType), C.int32_t(c.Layout), C.int32_t(c.BlockSize)
		cache.kv_heads, cache.head_size = C.int32_t(c.NumKVHeads), C.int32_t(c.HeadSize)
		cache.key_scale, cache.value_scale, cache.reserved = C.float(c.KeyScale), C.float(c.ValueScale), 0
		fillIn(cache, c)
		return nil
	})
}

//export llm_kvstore_copy
func llm_kvstore_copy(h C.llm_kvstore, pairs *C.llm_kvstore_pair_in, n C.int64_t) C.int {
	return stores.use(h, func(k *store) error { return k.move(pairs, n, k.s.CopyBlocks) })
}

//export llm_kvstore_swap_out
func llm_kvstore_swap_out(h C.llm_kvstore, pairs *C.llm_kvstore_pair_in, n C.int64_t) C.int {
	return stores.use(h, func(k *store) error { return k.move(pairs, n, k.s.SwapOut) })
}

//export llm_kvstore_swap_in
func llm_kvstore_swap_in(h C.llm_kvstore, pairs *C.llm_kvstore_pair_in, n C.int64_t) C.int {
	return stores.use(h, func(k *store) error { return k.move(pairs, n, k.s.SwapIn) })
}

func (k *store) move(p *C.llm_kvstore_pair, n C.int64_t, transfer func([]kvstore.Pair) error) error {
	var s spans
	var err error
	if k.pairs, err = pairsOf(&s, p, n, k.pairs[:0]); err != nil {
		return err
	}
	return transfer(k.pairs)
}

func pairsOf(s *spans, p *C.llm_kvstore_pair, n C.int64_t, list []kvstore.Pair) ([]kvstore.Pair, error) {
	pairs := slice(s, "pairs", p, n)
	if err := s.checkOverlaps(); err != nil {
		return list, err
	}
	for _, c := range pairs {
		list = append(list, kvstore.Pair{Src: int32(c.src), Dst: int32(c.dst)})
	}
	return list, nil
}

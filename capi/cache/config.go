package main

/*
#include "translate.h"
*/
import "C"

import (
	"crypto/rand"
	"encoding/hex"
	"syscall"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// configuration converts a config of C. It returns an error for numbers that are too large to handle.
func configuration(config *C.llm_cache_config, s *spans) (sched.Config, error) {
	var none sched.Config
	groups, err := groupsOf(config, s)
	if err != nil {
		return none, err
	}
	if err := checkNumbers(config); err != nil {
		return none, err
	}
	hash, err := hashOf(config)
	if err != nil {
		return none, err
	}
	return sched.Config{
		Policy: sched.Policy(config.policy),
		Limits: sched.Limits{
			MaxNumSeqs:                int(config.max_num_seqs),
			MaxNumBatchedTokens:       int(config.max_num_batched_tokens),
			LongPrefillTokenThreshold: int(config.long_prefill_token_threshold),
			DisableChunkedPrefill:     config.flags&C.LLM_CACHE_WHOLE_PREFILLS != 0,
			AdmitChunks:               config.flags&C.LLM_CACHE_ADMIT_CHUNKS != 0,
		},
		Speculation: sched.Speculation{
			NumLookaheadTokens:   int(config.num_lookahead_tokens),
			NumSpeculativeTokens: int(config.num_speculative_tokens),
			ReturnDrafts:         config.flags&C.LLM_CACHE_RETURN_DRAFTS != 0,
		},
		AsVLLM: config.flags&C.LLM_CACHE_AS_VLLM != 0,
		Batches: sched.Batches{
			AsyncScheduling:      config.flags&C.LLM_CACHE_ASYNC != 0,
			PipelineParallelSize: int(config.pipeline_parallel_size),
			MaxConcurrentBatches: int(config.max_concurrent_batches),
		},
		MaxLoRAs: int(config.max_loras),
		Encoder: sched.Encoder{
			EncoderCacheSize:         int(config.encoder_cache_size),
			MaxNumEncoderInputTokens: int(config.max_num_encoder_input_tokens),
			DisableChunkedMMInput:    config.flags&C.LLM_CACHE_WHOLE_ITEMS != 0,
		},
		ZeroNewBlocks: config.flags&C.LLM_CACHE_ZERO_BLOCKS != 0,
		Connector: sched.Connector{
			Consumer: config.flags&C.LLM_CACHE_KV_CONSUMER != 0, Producer: config.flags&C.LLM_CACHE_KV_PRODUCER != 0,
			BestEffort: config.flags&C.LLM_CACHE_KV_BEST_EFFORT != 0,
		},
		Cache: kvcache.Config{
			NumGPUBlocks: int(config.num_gpu_blocks), Groups: groups, EnablePrefixCaching: hash != nil, Hash: hash,
			EnableEvents: config.flags&C.LLM_CACHE_EVENTS != 0, Eagle: config.flags&C.LLM_CACHE_EAGLE != 0,
			MaxModelLen: int(config.max_model_len), Watermark: float64(config.watermark),
			RetentionInterval: int(config.retention_interval), SchedulerBlockSize: int(config.scheduler_block_size), MaxInFlightTokens: int(config.max_in_flight_tokens),
		},
	}, nil
}

// checkNumbers returns an error if a number is out of range or a flag is unknown.
func checkNumbers(config *C.llm_cache_config) error {
	limits := []struct {
		name     string
		value    C.int32_t
		min, max C.int32_t
	}{
		{"num_gpu_blocks", config.num_gpu_blocks, 2, C.LLM_CACHE_MAX_BLOCKS},
		{"max_model_len", config.max_model_len, 1, C.LLM_CACHE_MAX_MODEL_LEN},
		{"policy", config.policy, C.LLM_CACHE_FCFS, C.LLM_CACHE_PRIORITY},
		{"hash", config.hash, C.LLM_CACHE_HASH_SHA256, C.LLM_CACHE_HASH_NONE},
		{"num_lookahead_tokens", config.num_lookahead_tokens, 0, config.max_model_len},
		{"num_speculative_tokens", config.num_speculative_tokens, 0, config.max_model_len},
		{"scheduler_block_size", config.scheduler_block_size, 0, C.LLM_CACHE_MAX_MODEL_LEN},
		{"max_in_flight_tokens", config.max_in_flight_tokens, 0, 1 << 30},
		{"max_loras", config.max_loras, 0, 1 << 30},
		{"encoder_cache_size", config.encoder_cache_size, 0, 1 << 30},
		{"max_num_encoder_input_tokens", config.max_num_encoder_input_tokens, 0, 1 << 30},
	}
	for _, l := range limits {
		if l.value < l.min || l.value > l.max {
			return fail(C.LLM_CACHE_E_RANGE, "%s is %d: want %d to %d", l.name, l.value, l.min, l.max)
		}
	}
	if !(config.watermark >= 0 && config.watermark <= 1) {
		return fail(C.LLM_CACHE_E_RANGE, "the watermark is %v: want 0 to 1", float64(config.watermark))
	}
	const known = C.LLM_CACHE_EVENTS | C.LLM_CACHE_WHOLE_PREFILLS | C.LLM_CACHE_ADMIT_CHUNKS |
		C.LLM_CACHE_RETURN_DRAFTS | C.LLM_CACHE_AS_VLLM | C.LLM_CACHE_EAGLE | C.LLM_CACHE_ASYNC |
		C.LLM_CACHE_KV_CONSUMER | C.LLM_CACHE_KV_PRODUCER | C.LLM_CACHE_KV_BEST_EFFORT | C.LLM_CACHE_WHOLE_ITEMS |
		C.LLM_CACHE_ZERO_BLOCKS
	if unknown := config.flags &^ known; unknown != 0 {
		return fail(C.LLM_CACHE_E_RANGE, "flags %#x are not known", uint32(unknown))
	}
	return nil
}

func groupsOf(config *C.llm_cache_config, s *spans) ([]kvcache.Group, error) {
	if config.groups_len < 0 || config.groups_len > C.LLM_CACHE_MAX_GROUPS {
		return nil, fail(C.LLM_CACHE_E_RANGE, "%d groups: want at most %d", config.groups_len, C.LLM_CACHE_MAX_GROUPS)
	}
	given := slice(s, "groups", config.groups, config.groups_len)
	if s.err != nil {
		return nil, s.err
	}
	if len(given) == 0 {
		given = []C.llm_cache_group{{kind: C.LLM_CACHE_FULL, block_size: config.block_size}}
	} else if config.block_size != 0 {
		return nil, fail(C.LLM_CACHE_E_RANGE, "block_size is %d although groups are given: want 0", config.block_size)
	}
	var groups []kvcache.Group
	lcm := 1
	for i, g := range given {
		size := int(g.block_size)
		switch {
		case size < 1 || size > C.LLM_CACHE_MAX_BLOCK_SIZE:
			return nil, fail(C.LLM_CACHE_E_RANGE, "group %d has blocks of %d tokens: want 1 to %d", i, size, C.LLM_CACHE_MAX_BLOCK_SIZE)
		case g.kind < C.LLM_CACHE_FULL || g.kind > C.LLM_CACHE_MAMBA:
			return nil, fail(C.LLM_CACHE_E_RANGE, "group %d has the kind %d: want 0 to %d", i, g.kind, C.LLM_CACHE_MAMBA)
		case g.flags&^(C.LLM_CACHE_GROUP_ALIGN|C.LLM_CACHE_GROUP_EAGLE) != 0 || g.reserved != 0:
			return nil, fail(C.LLM_CACHE_E_RANGE, "group %d has the flags %#x and %d in reserved", i, g.flags, g.reserved)
		case g.num_speculative_blocks > C.LLM_CACHE_MAX_BLOCK_SIZE:
			return nil, fail(C.LLM_CACHE_E_RANGE, "group %d has %d speculative blocks", i, g.num_speculative_blocks)
		}
		if lcm = lcm / kvcache.GCD(lcm, size) * size; lcm > C.LLM_CACHE_MAX_MODEL_LEN {
			return nil, fail(C.LLM_CACHE_E_RANGE, "the least common multiple of the blocks is above %d", C.LLM_CACHE_MAX_MODEL_LEN)
		}
		groups = append(groups, kvcache.Group{
			Kind: kvcache.Kind(g.kind), BlockSize: size, Window: int(g.window), Retained: int(g.retained),
			Chunk: int(g.chunk), NumSpeculativeBlocks: int(g.num_speculative_blocks),
			Align: g.flags&C.LLM_CACHE_GROUP_ALIGN != 0, Eagle: g.flags&C.LLM_CACHE_GROUP_EAGLE != 0,
		})
	}
	return groups, nil
}

// hashOf returns the hash function, or nil without prefix caching.
func hashOf(config *C.llm_cache_config) (blockhash.Function, error) {
	seed, err := text("hash_seed", config.hash_seed)
	if err != nil {
		return nil, err
	}
	switch {
	case config.hash == C.LLM_CACHE_HASH_NONE:
		return nil, nil
	case config.hash == C.LLM_CACHE_HASH_XXH3:
		return blockhash.NewFast(), nil
	case config.hash_seed == nil:
		var drawn [32]byte
		if _, err := rand.Read(drawn[:]); err != nil {
			return nil, fail(C.LLM_CACHE_E_INTERNAL, "no random seed: %v", err)
		}
		seed = hex.EncodeToString(drawn[:])
	}
	return blockhash.CBOR(seed), nil
}

// checkMemory returns an error if the system does not have the memory for a pool of blocks. It maps that much memory
// and unmaps it again. Without this check, the Go runtime would end the process if it got no memory.
func checkMemory(blocks int) error {
	const perBlock = 96 + 4 // bytes of the pool and of tables
	const arena = 64 << 20  // the runtime maps multiples of this
	size := (blocks*perBlock + arena - 1) / arena * arena
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err == nil {
		err = syscall.Munmap(memory)
	}
	if err != nil {
		return fail(C.LLM_CACHE_E_MEMORY, "a pool of %d blocks needs %d MB of memory: %v", blocks, size>>20, err)
	}
	return nil
}

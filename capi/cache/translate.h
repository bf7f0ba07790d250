/* Declarations for the Go files, besides the public headers. */
#ifndef LLM_TRANSLATE_H
#define LLM_TRANSLATE_H

#include <stddef.h>

#include "llm_attention.h"
#include "llm_cache.h"
#include "llm_cuda.h"

/* cgo has no const: with these types its prototypes equal those of the public headers. */
typedef const llm_cache_config llm_cache_config_in;
typedef const llm_cache_spec llm_cache_spec_in;
typedef const int32_t llm_i32_in;
typedef const llm_request llm_request_in;
typedef const llm_cache_layer llm_cache_layer_in;
typedef const llm_cache_worker llm_cache_worker_in;
typedef llm_cache_plan *const llm_cache_plan_in;
typedef const int64_t llm_i64_in;
typedef const llm_cache_step llm_cache_step_in;
typedef const llm_attention_cache llm_attention_cache_in;
typedef const llm_attention_batch llm_attention_batch_in;
typedef const llm_attention_options llm_attention_options_in;
typedef const llm_tensor llm_tensor_in;
typedef const llm_rotation llm_rotation_in;
typedef const llm_kvstore_config llm_kvstore_config_in;
typedef const llm_kvstore_pair llm_kvstore_pair_in;
typedef const char llm_char_in;
typedef const llm_cuda_cache llm_cuda_cache_in;
typedef const llm_cuda_tensor llm_cuda_tensor_in;
typedef const llm_cuda_blocks llm_cuda_blocks_in;
typedef const llm_cuda_attention_config llm_cuda_attention_config_in;
typedef const llm_cuda_batch llm_cuda_batch_in;

/* The minimum sizes of structs. */
enum {
    LLM_CONFIG_LEAST = offsetof(llm_cache_config, policy),
    LLM_SPEC_LEAST = offsetof(llm_cache_spec, stop),
    LLM_PLAN_LEAST = offsetof(llm_cache_plan, max_model_len),
    LLM_PLAN_PACKED = offsetof(llm_cache_plan, block_stride),
    LLM_STEP_LEAST = offsetof(llm_cache_step, loads),
    LLM_KVSTORE_LEAST = offsetof(llm_kvstore_config, key_scales),
    LLM_CUDA_CACHE_LEAST = offsetof(llm_cuda_cache, dtype),
    LLM_STATS_LEAST = offsetof(llm_cache_stats, running)
};

/* Keeps a message for llm_cache_error_detail on this thread, and passes it to the log's hook. */
void llm_note(int error, const char *text, size_t n);

/* 1 under Valgrind. */
int llm_watched(void);

#endif

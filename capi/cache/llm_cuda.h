/*
 * llm_cuda.h - keys and values in blocks on a GPU: kernels that write, copy, swap and
 * attend, for C and C++. Part of libllm_cache; needs llm_cache.h.
 *
 * The kernels work over your memory, in your context and streams. The library opens
 * NVIDIA's driver when llm_cuda_open is called; it needs neither the CUDA toolkit nor the CUDA
 * runtime, and programs that do not call it run on machines without a driver. GPUs from compute
 * capability 8.0 on (A100) and drivers from release 470 on.
 *
 *        cuCtxSetCurrent(context);
 *        llm_cuda_open(NULL, &gpu);
 *        llm_cuda_attention_open(gpu, &config, &attention);
 *        for each step of llm_cache_schedule:
 *            llm_cuda_copy(gpu, &blocks, pairs, n, stream);        (the step's copies: see below)
 *            llm_cuda_attention_plan(attention, query_start, seq_lens, seqs, &plan);
 *            copy the plan's entries, tables, seq_lens, query_start and slots to the GPU, in the stream
 *            for each layer:
 *                llm_cuda_write(gpu, &cache, &keys, &values, slots, tokens, stream);
 *                llm_cuda_attention_run(attention, &batch, stream);
 *
 * testdata/examples/cuda.c is a complete program.
 *
 * What is computed is what llm_attention.h says. The bits of a token's output depend on its query and on
 * the keys and values that it reaches: not on other sequences in the batch, on how many of its
 * tokens are computed in a step, or on which blocks hold them. Values must be finite: one that is not can
 * change the outputs of tokens before it that are computed in the same step.
 *
 * Layout: keys and values of a layer are two arrays [block][KV head][token of the block][element of the
 * head]. Queries and outputs are F16 or BF16. Keys and values have the same type, or E4M3 or E5M2 (llm_attention.h), without
 * scales: they are rounded to nearest, ties to even, and those that are too large become the largest. For keys and values of 8 bits, queries
 * are computed in F16, so that BF16 queries beyond 65504 become 65504.
 *
 * Addresses on the GPU are uint64_t (CUdeviceptr), and are not checked: an address outside memory breaks the
 * context, and a later call returns the driver's error. Other arguments, structs and errors follow the
 * rules of llm_cache.h. LLM_CACHE_E_GPU means that the driver returned an error, which llm_cache_error_detail
 * names. Calls put work into the stream and return; arrays on the host may be changed then. Every call needs the context of
 * llm_cuda_open to be current on its thread. The first call of a kernel compiles it, which takes long, and
 * must not be captured in a graph; later ones may be.
 */
#ifndef LLM_CUDA_H
#define LLM_CUDA_H

#include "llm_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t llm_cuda;           /* never 0 */
typedef uint64_t llm_cuda_attention; /* never 0 */
typedef void *llm_cuda_stream;       /* a CUstream */

/*
 * Opens the driver, a path or NULL for libcuda.so.1, for the context that is current on this thread.
 * llm_cuda_close frees the kernels. LLM_CACHE_E_BUSY if attentions of the GPU are open.
 */
int llm_cuda_open(const char *driver, llm_cuda *gpu);
int llm_cuda_close(llm_cuda gpu);

/* The blocks of one layer. */
typedef struct llm_cuda_cache {
    uint32_t size;
    int32_t block_size, kv_heads, head_size; /* head_size: a multiple of 8 */
    uint64_t key, value;
    int32_t dtype;       /* of the tensors that are written: LLM_F16 or LLM_BF16; may be 0 if cache_dtype is 0 */
    int32_t cache_dtype; /* of key and value: LLM_E4M3, LLM_E5M2, or 0 for that of the tensors */
} llm_cuda_cache;

/*
 * Rows of elements of 16 bits on the GPU: row i begins at element i x stride, a multiple of 8. A stride of 0 means rows without
 * gaps.
 */
typedef struct llm_cuda_tensor {
    uint64_t at;
    int64_t stride;
} llm_cuda_tensor;

/*
 * Writes the key and value of token i of n to slots[i], int64 on the GPU, or nowhere if that is negative (vLLM's
 * reshape_and_cache). No two tokens have the same slot.
 */
int llm_cuda_write(llm_cuda gpu, const llm_cuda_cache *cache, const llm_cuda_tensor *keys, const llm_cuda_tensor *values,
                   uint64_t slots, int64_t n, llm_cuda_stream stream);

/* The arrays of keys and of values of all layers. */
typedef struct llm_cuda_blocks {
    uint32_t size;
    int32_t arrays;      /* number of arrays, at most 65535 */
    uint64_t at;         /* on the GPU: the address of each array */
    int64_t block_bytes; /* of a block in one array, a multiple of 16 */
} llm_cuda_blocks;

/*
 * Copies blocks in all arrays. pairs is on the GPU: n of llm_kvstore_pair. No block is written twice, or both read and written.
 * A copy of a step may read what an earlier one wrote, so make a call for each, or for those for which this does not hold.
 * The host's memory is pinned, at the address that the GPU uses for it; a block of the host has the block of each array, one behind
 * the other. A kernel gathers the blocks, because many small copies use the bus badly.
 */
int llm_cuda_copy(llm_cuda gpu, const llm_cuda_blocks *blocks, uint64_t pairs, int64_t n, llm_cuda_stream stream);
int llm_cuda_swap_out(llm_cuda gpu, const llm_cuda_blocks *blocks, uint64_t host, uint64_t pairs, int64_t n, llm_cuda_stream stream);
int llm_cuda_swap_in(llm_cuda gpu, const llm_cuda_blocks *blocks, uint64_t host, uint64_t pairs, int64_t n, llm_cuda_stream stream);

/* What does not change from step to step. */
typedef struct llm_cuda_attention_config {
    uint32_t size;
    int32_t dtype;                           /* of queries and outputs: LLM_F16 or LLM_BF16 */
    int32_t heads;                           /* of queries: 1 to 16 for each KV head */
    int32_t block_size, kv_heads, head_size; /* block_size: a multiple of 16; head_size: 64, 80, 96, 128 or 256 */
    int32_t window;                          /* tokens that a query attends to, itself included; 0 means all */
    float scale;                             /* of q x k; 0 means 1/sqrt(head size) */
    float soft_cap;                          /* 0 means none; at most 1000 */
    int32_t cache_dtype;                     /* of keys and values: LLM_E4M3, LLM_E5M2, or 0 for dtype */
    uint64_t alibi, sinks;                   /* on the GPU: float for each query head, or 0 */
} llm_cuda_attention_config;

int llm_cuda_attention_open(llm_cuda gpu, const llm_cuda_attention_config *config, llm_cuda_attention *attention);
int llm_cuda_attention_close(llm_cuda_attention attention);

/* How a step's work is divided. */
typedef struct llm_cuda_plan {
    uint32_t size;
    int32_t reserved;   /* 0 */
    llm_cache_i32s entries; /* out, to be copied to the GPU */
    int64_t part_bytes; /* out: memory that the kernels need on the GPU, can be 0 */
} llm_cuda_plan;

/*
 * Plans a step: sequence s has seq_lens[s] tokens, queries included, whose queries are tokens query_start[s] to
 * query_start[s + 1] - 1 of the batch, the first 0. These arrays are on the host. The plan holds for
 * every llm_cuda_attention_run until the next one. LLM_CACHE_E_SMALL if entries is too small.
 */
int llm_cuda_attention_plan(llm_cuda_attention attention, const int32_t *query_start, const int32_t *seq_lens, int64_t seqs,
                            llm_cuda_plan *plan);

/* All arrays are on the GPU. */
typedef struct llm_cuda_batch {
    uint32_t size;
    int32_t reserved;                         /* 0 */
    llm_cuda_tensor queries, outputs;         /* [tokens][heads][head size] */
    uint64_t key, value;                      /* of the layer */
    uint64_t block_tables;                    /* int32 [seqs, table_stride]; entries after a sequence's last token are
                                                 not read */
    int64_t table_stride;
    uint64_t query_start, seq_lens;           /* int32, as given to the plan */
    uint64_t entries, parts;                  /* a copy of the plan's entries; memory of part_bytes, or 0 */
} llm_cuda_batch;

/* Computes the outputs. Keys and values of the query tokens must have been written before, in this stream. */
int llm_cuda_attention_run(llm_cuda_attention attention, const llm_cuda_batch *batch, llm_cuda_stream stream);

#ifdef __cplusplus
}
#endif

#endif

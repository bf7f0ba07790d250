/*
 * llm_attention.h - attention over paged blocks, and memory for their keys and
 * values, for C and C++. Part of libllm_cache; needs llm_cache.h.
 *
 * Two ways to use it:
 *
 * 1. Over your own memory. Fill in an llm_attention_cache (llm_attention_describe
 *    does, for memory without gaps), write keys and values where a slot mapping
 *    says, and attend through block tables:
 *
 *        llm_attention_write(&cache, &keys, &values, slots, n, NULL, threads);
 *        llm_attention_forward(&cache, &batch, threads);
 *
 *    llm_attention_copy makes the copies of a step and copies swapped blocks;
 *    llm_attention_convert copies blocks to another layout or type.
 *
 * 2. With a store, which owns the memory of all layers and keeps the block tables
 *    of requests. A step is then:
 *
 *        llm_cache_schedule(cache, &step);
 *        llm_kvstore_begin(store, &step);              (also makes the step's copies)
 *        for each layer: llm_kvstore_write(store, layer, &keys, &values, NULL);
 *                        llm_kvstore_attend(store, layer, &queries, &outputs, &options);
 *        llm_cache_update(...);
 *
 *    Begin every step that llm_cache_schedule returns, even one without rows, and even
 *    one that then fails: after llm_cache_step_failed, continue with the next step. With
 *    several steps in flight, begin, write and attend one before you begin the next.
 *
 * testdata/examples/attention.c is a complete program.
 *
 * What is computed: vLLM's paged_attention, for decoding, for prefill over a cached
 * prefix, and for both in one batch. The logit x of the query at position p and the key at
 * position k <= p is
 *
 *        x = scale * (q . k);  x = soft_cap * tanh(x / soft_cap);  x += alibi * (k - p)
 *
 * and the output is the sum of exp(x) * v divided by the sum of exp(x), to which exp(sink)
 * is added if there are sinks. Tokens outside the window are left out; if
 * all are, the output is zeros. The bits of a sequence's output depend neither on the number of
 * threads nor on what else is in the batch.
 *
 * The rules of llm_cache.h for units, sizes of structs, ownership, errors, threads and
 * processes hold here too, and the error codes are the same. A call that fails has computed
 * and written nothing; after LLM_CACHE_E_INTERNAL a store can only be closed. What a call
 * writes must not overlap with anything that it reads, except that outputs may be the memory
 * of the queries. Calls on one store run one after the other, calls on different stores in
 * parallel. Strides of tensors are in elements, other offsets and strides in bytes. At most
 * 256 threads; 0 means one for each processor.
 */
#ifndef LLM_ATTENTION_H
#define LLM_ATTENTION_H

#include "llm_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements. */
enum {
    LLM_F32 = 0,
    LLM_F16 = 1,
    LLM_BF16 = 2,
    LLM_E4M3 = 3, /* keys and values only */
    LLM_E5M2 = 4, /* keys and values only */
    LLM_INT8 = 5  /* keys and values only; with a float scale for each token and head, the
                     largest magnitude divided by 127; numbers are multiplied by 127
                     divided by that magnitude. Queries are rounded to 16 bits
                     before they are multiplied with such keys */
};

/* Where the elements of a block are. */
enum {
    /* What this library reads fastest. Each block and KV head: keys [block size / w,
       head size, w], w being 16 or the largest power of 2 in the block size; values
       [block size, head size]; with LLM_INT8 the scales of keys, then of values. */
    LLM_LAYOUT_TILE = 0,
    /* vLLM: keys [blocks, KV heads, head size / x, block size, x], x elements being
       16 bytes; values [blocks, KV heads, head size, block size] */
    LLM_LAYOUT_VLLM = 1,
    /* FlashAttention: keys and values [blocks, block size, KV heads, head size]. The tokens of a
       block are always KV heads x head size elements apart */
    LLM_LAYOUT_FLASH = 2
};
/* With the layouts of vLLM and FlashAttention, llm_attention_describe puts all keys first, then all
   values, then the scales of keys and those of values, each [blocks, KV heads, block size]. */

/* The blocks of one layer, in the caller's memory. */
typedef struct llm_attention_cache {
    uint32_t size;
    int32_t dtype, layout;
    int32_t blocks, block_size; /* tokens of a block */
    int32_t kv_heads, head_size; /* head size: a multiple of 8 up to 512 (LLM_INT8: 256), and with LLM_LAYOUT_VLLM
                                    a multiple of 16 bytes (of 16 elements for fp8 and int8) */
    float key_scale, value_scale; /* a key is the stored number times key_scale, a value the stored one times
                                     value_scale; 0 means 1; ignored with LLM_INT8. What is written is multiplied by
                                     the inverse of the scale, which can round a tie the other way than a division */
    int32_t reserved;             /* 0 */
    void *key, *value;            /* keys and values may alternate in the same memory, but must not overlap */
    int64_t key_bytes, value_bytes;
    int64_t block_stride, head_stride; /* block b and KV head h begin at key + b x block_stride + h x head_stride, and
                                          likewise from value on; inside, elements are as in `layout`, without gaps */
    void *key_scales, *value_scales;   /* LLM_INT8 only; may lie between keys and values. The scale of token t of
                                          block b: t floats after b x scale_block_stride + h x scale_head_stride */
    int64_t key_scales_bytes, value_scales_bytes;
    int64_t scale_block_stride, scale_head_stride;
} llm_attention_cache;

/*
 * Fills in the pointers, bytes and strides of a cache whose dtype, layout, blocks, block_size,
 * kv_heads and head_size are set, for blocks without gaps in `memory`, which has `bytes` bytes
 * and is aligned to 64. key_scale and value_scale are not changed. With memory NULL it only sets
 * key_bytes, to the number of bytes that are needed for everything.
 */
int llm_attention_describe(llm_attention_cache *cache, void *memory, int64_t bytes);

/* Rows of elements: row i begins at element i x stride and holds [heads, head size]. */
typedef struct llm_tensor {
    void *at;
    int64_t rows, stride;
    int32_t dtype; /* LLM_F32, LLM_F16 or LLM_BF16 */
    int32_t reserved; /* 0 */
} llm_tensor;

/* Rotary embedding of keys before they are written. */
typedef struct llm_rotation {
    uint32_t size;
    int32_t rotated;         /* the first elements of a head, an even number */
    int32_t interleaved;     /* 1: pairs 2i and 2i+1 (GPT-J); 0: i and i + rotated/2 */
    int32_t reserved;        /* 0 */
    const int32_t *positions; /* of each token */
    const float *cos, *sin;   /* [entries], a row of rotated/2 for each position */
    int64_t entries;
} llm_rotation;

/*
 * Writes the key and value of token i into slots[i], or nowhere if that is -1 (vLLM's
 * reshape_and_cache). n is the number of slots and of rows. rotation may be NULL. keys and values
 * may be the same struct or memory. If several tokens have the same slot, the last one is written.
 */
int llm_attention_write(const llm_attention_cache *cache, const llm_tensor *keys, const llm_tensor *values,
                        const int64_t *slots, int64_t n, const llm_rotation *rotation, int32_t threads);

/* A block to be copied, and the block that becomes its copy. */
typedef struct llm_kvstore_pair {
    int32_t src, dst;
} llm_kvstore_pair;

/*
 * Copies blocks of one layer, pair after pair: a later pair sees what an earlier one has written. `to` and `from`
 * describe the same memory in the same way (vLLM's copy_blocks), or memory that does not overlap (swap_blocks), in
 * which strides and numbers of blocks can differ. dtype, layout, block_size, kv_heads, head_size and scales must be
 * equal. Since version 2.1 of the library.
 */
int llm_attention_copy(const llm_attention_cache *to, const llm_attention_cache *from, const llm_kvstore_pair *pairs,
                       int64_t n, int32_t threads);

/*
 * Copies all blocks of `from` to the same blocks of `to`. dtype, layout, scales and strides can differ; block_size,
 * kv_heads and head_size must be equal. Numbers are rounded to nearest, after a multiplication by from's scale over
 * to's; without a change of dtype and scale they keep all their bits. LLM_INT8 can be converted only to LLM_INT8. The
 * memory must not overlap. It runs on one thread. Since version 2.1 of the library.
 */
int llm_attention_convert(const llm_attention_cache *to, const llm_attention_cache *from);

/* What changes the logits. NULL means none of it, and a scale of 1/sqrt(head size). */
typedef struct llm_attention_options {
    uint32_t size;
    float scale;          /* of q x k; 0 means 1/sqrt(head size) */
    const float *alibi;   /* a slope for each query head, or NULL */
    const float *sinks;   /* for each query head a logit without a value, or NULL */
    float soft_cap;       /* 0 means none */
    int32_t window;       /* tokens that a query attends to, itself included; 0 means all */
    int32_t common_prefix; /* first tokens that all sequences share, in the same blocks: they are read once for all, and
                              the output is the same. No sequence may have fewer tokens before its queries. For a step:
                              common.at[group] x block_size, but 0 if a row has fewer `computed`. LLM_CACHE_E_RANGE if
                              the blocks are not the same */
    int32_t version;      /* 0: whichever is faster; 1: paged_attention_v1; 2: _v2. The output is the same */
    int32_t reserved[6]; /* 0; five of them were vLLM's block-sparse attention */
} llm_attention_options;

/* Query tokens of sequences, the last tokens of each. */
typedef struct llm_attention_batch {
    uint32_t size;
    int32_t heads; /* of queries: a multiple of the KV heads */
    llm_tensor queries, outputs; /* the same memory, with the same dtype and stride, or apart */
    const int32_t *query_start; /* [seqs + 1]: where the queries of each sequence begin; the first is 0, the last is the
                                   number of rows of queries */
    const int32_t *seq_lens;    /* [seqs]: tokens, queries included */
    const int32_t *block_tables; /* [seqs, table_stride]; entries after a sequence's last token, and of tokens before
                                    all windows, can be anything */
    int64_t seqs, table_stride;
    const llm_attention_options *options; /* or NULL */
} llm_attention_batch;

/* Computes the outputs. The keys and values of the query tokens must have been written before. */
int llm_attention_forward(const llm_attention_cache *cache, const llm_attention_batch *batch, int32_t threads);

/* ---- A store: the blocks of all layers ---- */

typedef uint64_t llm_kvstore; /* never 0 */

typedef struct llm_kvstore_config {
    uint32_t size;
    int32_t layers;
    int32_t dtype, layout;
    int32_t blocks;      /* of the device, with the null block: num_gpu_blocks of the cache; 0 means as many as fit into
                            `bytes` */
    int32_t host_blocks; /* for swapping; 0 means none */
    int32_t block_size, kv_heads, head_size;
    int32_t threads;
    int64_t bytes;
    int32_t groups;      /* of layers, as in the cache's configuration; 0 means one */
    int32_t reserved;    /* 0 */
    const int32_t *layer_group; /* [layers]: the group of each; NULL means 0 */
    /* A caller's struct may end here. */
    const float *key_scales, *value_scales; /* [layers]: key_scale and value_scale of each; NULL means 1 */
} llm_kvstore_config;

/*
 * Maps zeroed memory, in huge pages where the system allows. The system provides it on first
 * use. LLM_CACHE_E_MEMORY if it is more than the machine has.
 */
int llm_kvstore_open(const llm_kvstore_config *config, llm_kvstore *store);

/* Unmaps the memory. Pointers into it become invalid. */
int llm_kvstore_close(llm_kvstore store);

/* How many blocks the device has. */
int llm_kvstore_blocks(llm_kvstore store, int32_t *blocks);

/* Where the blocks of a layer are, until the store is closed. Set cache->size before. */
int llm_kvstore_layer(llm_kvstore store, int32_t layer, llm_attention_cache *cache);

/*
 * Begins a step that llm_cache_schedule has filled: drops the tables of preempted
 * and finished requests, copies blocks, enters new blocks into tables. After that the
 * step's arrays may be used for something else.
 */
int llm_kvstore_begin(llm_kvstore store, const llm_cache_step *step);

/* Writes the keys and values of the step's tokens into a layer, in the order of its rows. */
int llm_kvstore_write(llm_kvstore store, int32_t layer, const llm_tensor *keys, const llm_tensor *values,
                      const llm_rotation *rotation);

/* Computes attention of the step's tokens in a layer, in the order of its rows. queries and outputs may be the same
 * struct. */
int llm_kvstore_attend(llm_kvstore store, int32_t layer, int32_t heads, const llm_tensor *queries,
                       const llm_tensor *outputs, const llm_attention_options *options);

/*
 * Copies blocks in all layers, pair after pair: on the device; from src of the device to dst of the host; from src of
 * the host to dst of the device. Tables are not changed. llm_kvstore_begin makes the copies of a step itself.
 */
int llm_kvstore_copy(llm_kvstore store, const llm_kvstore_pair *pairs, int64_t n);
int llm_kvstore_swap_out(llm_kvstore store, const llm_kvstore_pair *pairs, int64_t n);
int llm_kvstore_swap_in(llm_kvstore store, const llm_kvstore_pair *pairs, int64_t n);

#ifdef __cplusplus
}
#endif

#endif

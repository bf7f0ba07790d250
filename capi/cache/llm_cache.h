/*
 * llm_cache.h - vLLM V1's KV-cache manager and scheduler for C and C++.
 *
 * A cache assigns blocks of key-value memory by number; the caller owns the memory
 * itself. The caller adds requests with their tokens. In each step, llm_cache_schedule
 * returns which requests compute how many tokens, in which blocks and slots; the
 * caller runs its model and passes the sampled tokens to llm_cache_update. A step
 * takes two calls, however many requests run.
 *
 *     llm_cache_config config = {.size = sizeof config, .num_gpu_blocks = 4096, .block_size = 16,
 *                                .max_num_seqs = 64, .max_num_batched_tokens = 2048, .max_model_len = 4096};
 *     llm_cache cache;
 *     int error = llm_cache_open(&config, &cache);
 *     if (error) { fputs(llm_cache_error_text(error), stderr); return 1; }
 *     llm_cache_spec spec = {.size = sizeof spec, .tokens = {prompt, n}, .max_tokens = 100};
 *     llm_request id;
 *     llm_cache_add(cache, &spec, &id);
 *     for (;;) {
 *         while ((error = llm_cache_schedule(cache, &step)) == LLM_CACHE_E_SMALL) { grow(&step); }
 *         if (error || step.rows.len == 0) { break; } // nothing can run before another call
 *         run_model(&step, counts, sampled);
 *         llm_cache_update(cache, counts, step.rows.len, sampled, n_sampled, &outcome);
 *     }
 *     llm_cache_close(cache);
 *
 * testdata/examples/serve.c is a whole program, images.c beside it one with an encoder, offload.c
 * one that keeps blocks in files.
 *
 * THE CALLS, in the order below. Every host uses llm_cache_open, _add, _schedule, _update and
 * _close, and llm_cache_error_text; most also use llm_cache_abort, _step_failed, _statistics and
 * _error_detail. Some hosts need the others: llm_cache_progress and _table to inspect a request;
 * llm_cache_plan_memory and _plan_workers to find num_gpu_blocks and groups; llm_cache_release,
 * _fork and _set_drafts for grammars, beams and draft models; llm_cache_match, _received, _load_failed
 * and _sent for transfers of keys and values; llm_cache_drain and _drain_msgpack for indexers;
 * llm_cache_reset, _pause and _reset_encoder for new weights; llm_cache_set_log to log errors.
 *
 * SEVERAL STEPS IN FLIGHT. A step is in flight from llm_cache_schedule to its llm_cache_update.
 * With max_concurrent_batches above 1, several steps can be in flight; updates come in the order
 * of the steps. As in vLLM there are two uses. With pipeline_parallel_size, other requests or later
 * chunks of a prompt occupy the stages. With LLM_CACHE_ASYNC a request is scheduled again before its
 * last token is known: the row's input is the token that the worker has just sampled. If a request
 * has finished, was aborted or was preempted since, some sampled tokens may not count: `kept` is the
 * number of those that do. With drafts, `computed` of a row assumes that all drafts of the steps in
 * flight are accepted; the worker subtracts those that were not, and takes the slots from its block
 * table. preempted, finished, zero and freed_encoder_outputs of a step without rows apply after the
 * steps in flight.
 *
 * KEYS AND VALUES FROM ELSEWHERE. With LLM_CACHE_KV_CONSUMER the keys and values of a prompt's beginning can be
 * loaded, from another machine or another memory, instead of computed. The host sets how many tokens can be loaded: in
 * `external` of the spec, or, with LLM_CACHE_ASK, by llm_cache_match when `queries` of a step lists the request. Tokens
 * that are in the cache are not loaded. Without LLM_CACHE_LOAD_ASYNC the request runs at once, and `external` of its
 * row tells what to load before the row is computed. With it, `loads` of the step lists the request, which runs after
 * llm_cache_received. Before its first row, its blocks can be taken for a running request; then that row computes their
 * tokens. Tokens that could not be loaded are computed, too; llm_cache_load_failed returns which rows are void then. The
 * last block may be partly filled: `external`, and what is sent, need not be a multiple of a block. With
 * LLM_CACHE_KV_PRODUCER the blocks of a finished request can be kept while they are sent (LLM_CACHE_SEND,
 * llm_cache_sent). With several steps in flight a consumer reuses blocks of finished requests only when no step in
 * flight writes to them.
 *
 * IMAGES AND OTHER ITEMS. `items` of a spec are parts of the prompt whose content is not given
 * by the tokens; their hashes become part of the hashes of blocks. With an encoder_cache_size
 * the library also schedules the encoder: encoder_inputs of a step are the items to encode before
 * its rows are computed; the worker keeps each output under the hash of its item until
 * freed_encoder_outputs of a step has that hash. A row whose tokens take an embedding of an item
 * always finds its output. encoder_cache_size and max_num_encoder_input_tokens count embeddings; an
 * item has as many as tokens, except those that is_embed marks as text.
 *
 * CORRECT BY DEFAULT. A block can be hit only if its tokens were computed: if a row is preempted,
 * aborted, samples nothing or fails after it was scheduled, its blocks cannot be hit. The worker must
 * compute every row of a step, even if the request was aborted since (another request may have hit
 * its blocks), or call llm_cache_step_failed. Only LLM_CACHE_AS_VLLM changes this.
 *
 * UNITS. Lengths and positions are tokens, capacities and `len` are entries of
 * an array, unless said otherwise. Blocks are numbered from 0; block 0 is
 * the null block, a placeholder for blocks that are no longer read; it is never
 * written. Slot = block x block_size + offset in the block.
 *
 * STRUCTS WITH A `size`. Set it to sizeof. 0 in any other field is its default. The fields that a
 * shorter struct, of an older header, lacks are 0 (it must end between two fields); a longer struct,
 * of a newer header, is refused if fields that this library does not know are not 0. In
 * llm_cache_stats the library writes the fields that size includes, and 0 into fields that it does
 * not know. Structs without a size (rows, copies, events, arrays, groups) never change.
 *
 * OWNERSHIP. Every array belongs to the caller. The library copies what it
 * reads, keeps no pointer beyond a call, and writes only into the arrays and
 * structs of the call. Input arrays may be freed after the call.
 *
 * OUTPUT ARRAYS have `at`, `cap` and `len`. On success len is the number of entries written. If one
 * is too small, the call returns LLM_CACHE_E_SMALL, each len is the number of entries needed, and no
 * entry is written. Other errors do not change len. `at` may be NULL if cap is 0. No result is lost:
 * see llm_cache_schedule and llm_cache_drain.
 *
 * HANDLES are numbers and are checked: those of closed caches, of finished requests and of requests
 * of other open caches are errors.
 *
 * ERRORS. 0 is success; everything else is negative and has a text. A call that
 * fails has changed nothing, except that llm_cache_schedule keeps the step it has scheduled
 * when it returns LLM_CACHE_E_SMALL, or LLM_CACHE_E_SIZE because the struct lacks a field.
 * Pointers and lengths are checked as far as possible: NULL, negative and huge lengths, misaligned
 * arrays and arrays that overlap one that is written are errors. An invalid pointer crashes, as
 * everywhere in C.
 *
 * THREADS. Any call may be made at any time on any thread. Calls on one cache run
 * one after the other, calls on different caches in parallel. llm_cache_close may
 * be called while other threads call: calls that are running finish, calls that wait return
 * LLM_CACHE_E_HANDLE. A step belongs to the thread that scheduled it: let one thread
 * schedule and update, and any number of others add, abort and query.
 *
 * PROCESS. The library contains the Go runtime, which starts threads when it is
 * loaded. After fork() without exec, only the parent may call. Do not call from signal
 * handlers, and do not leave a call by longjmp.
 * If the process runs out of memory during a call, it ends; llm_cache_open
 * checks beforehand that the memory for the pool is there, and otherwise returns LLM_CACHE_E_MEMORY.
 */
#ifndef LLM_CACHE_H
#define LLM_CACHE_H

#include <stdint.h>

/*
 * The version of this interface, and the number in the name of the shared library.
 * Version 3: llm_cache_load_failed also returns the void rows. A step has no copies for a request that it
 * preempts; with LLM_CACHE_AS_VLLM it has, with the index -1. residency_sample was removed.
 */
#define LLM_CACHE_VERSION 3

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LLM_CACHE_OK = 0,
    LLM_CACHE_E_HANDLE = -1,   /* no open cache has this handle */
    LLM_CACHE_E_REQUEST = -2,  /* no live request of this cache has this id */
    LLM_CACHE_E_NULL = -3,     /* a pointer is NULL that must not be */
    LLM_CACHE_E_SIZE = -4,     /* the size of a struct is not one that this library knows, or the struct of a
                                  step or a plan ends before a field that is needed */
    LLM_CACHE_E_RANGE = -5,    /* a number is out of range, or numbers do not fit together */
    LLM_CACHE_E_SMALL = -6,    /* an output array is too small; len is what is needed */
    LLM_CACHE_E_OVERLAP = -7,  /* two arrays or structs overlap */
    LLM_CACHE_E_ALIGN = -8,    /* an array or struct is not aligned for its type */
    LLM_CACHE_E_ORDER = -9,    /* the call is not allowed now: a step is in flight, or none is; or the cache lacks the
                                  role for it, such as llm_cache_load_failed without LLM_CACHE_KV_CONSUMER */
    LLM_CACHE_E_BUSY = -10,    /* blocks are in use, or attentions of a GPU are open */
    LLM_CACHE_E_LIMIT = -11,   /* too many open caches or live requests */
    LLM_CACHE_E_MEMORY = -12,  /* not enough memory for the pool, or in a plan, for one request */
    LLM_CACHE_E_INTERNAL = -13, /* a bug in the library; the cache or store can only be closed */
    LLM_CACHE_E_GPU = -14      /* llm_cuda.h: NVIDIA's driver is not there, or returned an error; the detail names it */
};

enum {
    LLM_CACHE_MAX_BLOCKS = 1 << 24,
    LLM_CACHE_MAX_BLOCK_SIZE = 1 << 16,
    LLM_CACHE_MAX_MODEL_LEN = 1 << 24,
    LLM_CACHE_MAX_GROUPS = 64,
    LLM_CACHE_MAX_TEXT = 4096,      /* bytes of a salt, an adapter's name or a seed, without the final 0 */
    LLM_CACHE_MAX_STOP = 1024,      /* stop tokens of a request */
    LLM_CACHE_MAX_ITEMS = 4096,     /* multimodal items of a request */
    LLM_CACHE_MAX_REQUESTS = 1 << 20, /* live in one cache */
    LLM_CACHE_MAX_OPEN = 4095       /* caches in a process */
};

typedef uint64_t llm_cache;   /* never 0 */
typedef uint64_t llm_request; /* never 0 */

/* The text of an error code, in static memory; never NULL. */
const char *llm_cache_error_text(int error);

/*
 * What was wrong in the last failed call of this thread, with numbers, in memory
 * of the thread; "" if none has failed.
 */
const char *llm_cache_error_detail(void);

/* Arrays that a call fills; see OUTPUT ARRAYS. */
typedef struct llm_cache_i32s {
    int32_t *at;
    int64_t cap, len;
} llm_cache_i32s;

typedef struct llm_cache_i64s {
    int64_t *at;
    int64_t cap, len;
} llm_cache_i64s;

/* ---- Opening and closing ---- */

/* What a group of layers attends to. */
enum {
    LLM_CACHE_FULL = 0,           /* all tokens */
    LLM_CACHE_SLIDING_WINDOW = 1, /* the last `window` tokens */
    LLM_CACHE_CHUNKED_LOCAL = 2,  /* the tokens of the same chunk of `chunk`; with prefix caching all groups must have
                                     the same block size */
    LLM_CACHE_MAMBA = 3           /* a running state. A row reads it from block (computed - 1) / block_size of its
                                     table and writes it to the block of its last token, with drafts to that of the
                                     last accepted one; the group's slots have no meaning */
};

enum {
    LLM_CACHE_GROUP_ALIGN = 1, /* Mamba: keep states at ends of blocks (vLLM's mode "align") */
    LLM_CACHE_GROUP_EAGLE = 2  /* hits lose their last block, which the draft model computes */
};

/* Layers that share a block table. A field of another kind must be 0. */
typedef struct llm_cache_group {
    int32_t kind;
    int32_t block_size; /* tokens of a block */
    int32_t window;
    int32_t retained; /* sliding window: tokens before the window that are kept, too. After a hit the blocks before the
                         window are block 0 */
    int32_t chunk;
    /*
     * Mamba: state blocks for draft tokens. They are the last entries of the table, after the block
     * of the row's last token. The worker decides what they contain, and no hit finds them. If drafts
     * cross several ends of blocks, the entry of an accepted token can be block 0: then only
     * these blocks can have the state after it.
     */
    int32_t num_speculative_blocks;
    int32_t flags;       /* LLM_CACHE_GROUP_... */
    int32_t reserved;    /* 0 */
} llm_cache_group;

/* The order of waiting requests. */
enum {
    LLM_CACHE_FCFS = 0,    /* in the order of llm_cache_add */
    LLM_CACHE_PRIORITY = 1 /* by priority, then arrival; smaller first */
};

/* Hash function for blocks. */
enum {
    LLM_CACHE_HASH_SHA256 = 0, /* vLLM's sha256_cbor: collision-resistant */
    LLM_CACHE_HASH_XXH3 = 1,   /* faster, but collisions can be made: only if users trust each other or have different
                                  salts */
    LLM_CACHE_HASH_NONE = 2    /* no prefix caching */
};

enum {
    LLM_CACHE_EVENTS = 1,             /* record events; they are kept until they are drained */
    LLM_CACHE_WHOLE_PREFILLS = 2,     /* a prompt is computed in one step */
    LLM_CACHE_ADMIT_CHUNKS = 4,       /* admit a request if its first chunk fits */
    LLM_CACHE_RETURN_DRAFTS = 8,      /* free blocks of rejected drafts at once; only with one step in flight, so not
                                         with LLM_CACHE_ASYNC */
    /* 16 was LLM_CACHE_FORGET_UNSCHEDULED, now the default; LLM_CACHE_AS_VLLM turns it off */
    LLM_CACHE_EAGLE = 32,             /* the drafts come from EAGLE */
    /*
     * Exactly as vLLM, even where that is unsafe: blocks that were scheduled and never computed can be
     * hit; of requests of equal priority the first running one is preempted, so two can preempt each
     * other for ever; a step can be empty although a request can run in the next one.
     */
    LLM_CACHE_AS_VLLM = 64,
    LLM_CACHE_ASYNC = 128, /* schedule a request before its last token is known */
    /* See KEYS AND VALUES FROM ELSEWHERE (vLLM: kv_role; kv_both is both). */
    LLM_CACHE_KV_CONSUMER = 256,    /* requests can load */
    LLM_CACHE_KV_PRODUCER = 512,    /* blocks of finished requests can be sent */
    LLM_CACHE_KV_BEST_EFFORT = 1024, /* blocks are sent to a cache, which can miss: a preempted request can finish with
                                        what steps in flight sample, and then has no blocks to send */
    LLM_CACHE_WHOLE_ITEMS = 2048, /* no chunk of a prompt ends inside an item, unless it also begins there (vLLM:
                                     disable_chunked_mm_input) */
    LLM_CACHE_ZERO_BLOCKS = 4096 /* steps have `zero`. It is needed with Mamba groups, and with layers of different
                                    precision: the data of one can be NaN to another */
};

typedef struct llm_cache_config {
    uint32_t size;
    int32_t num_gpu_blocks; /* the null block included */
    int32_t block_size;    /* tokens of a block of one group of full attention; 0 if groups are given */
    int32_t max_num_seqs;  /* running requests */
    int32_t max_num_batched_tokens; /* in a step, of all requests */
    int32_t max_model_len; /* of a request, prompt and output; at least 2 */
    /* A caller's struct may end here, or after any field below. */
    int32_t policy;        /* LLM_CACHE_FCFS or LLM_CACHE_PRIORITY */
    int32_t hash;          /* LLM_CACHE_HASH_... */
    const char *hash_seed; /* SHA-256: as vLLM's PYTHONHASHSEED; NULL means random, so hashes differ from those of other
                              processes */
    uint32_t flags;        /* LLM_CACHE_EVENTS and others */
    int32_t long_prefill_token_threshold; /* most tokens of one request in a step; 0 means no limit */
    int32_t num_lookahead_tokens;   /* slots for the draft model of each request */
    int32_t num_speculative_tokens; /* most draft tokens of each request and step; 0 means no speculation */
    double watermark;      /* fraction of the blocks that stays free when a request is admitted, 0 to 1 */
    const llm_cache_group *groups; /* NULL means one group of full attention */
    int64_t groups_len;
    int32_t retention_interval; /* of window and Mamba blocks that stay in the cache: 0 those at the end of the
                                   prompt and of prefixes that requests share, which is vLLM's default; n > 0 also
                                   every n tokens, a multiple of scheduler_block_size; -1 every block. n > 0 is
                                   LLM_CACHE_E_RANGE without a window or Mamba group */
    int32_t scheduler_block_size; /* granularity of hits; 0 means least common multiple of the blocks */
    int32_t pipeline_parallel_size; /* stages that compute a step one after the other; 0 means one */
    int32_t max_concurrent_batches; /* steps in flight; 0 means pipeline_parallel_size, plus one with LLM_CACHE_ASYNC */
    int32_t max_in_flight_tokens;   /* most tokens of a request in steps in flight, for which windows keep blocks (vLLM:
                                       the product of batches and tokens of a step); 0 means max_model_len */
    int32_t max_loras;              /* adapters that run at a time: requests with lora_id above 0; 0 means no limit */
    int32_t encoder_cache_size;     /* embeddings that the worker keeps; 0 means no encoder: items are only hashed */
    int32_t max_num_encoder_input_tokens; /* embeddings to compute in a step; 0 means encoder_cache_size */
} llm_cache_config;

/* Makes a cache. */
int llm_cache_open(const llm_cache_config *config, llm_cache *cache);

/* Closes a cache and ends all its requests. Its memory is reused. */
int llm_cache_close(llm_cache cache);

/* ---- Requests ---- */

typedef struct llm_cache_tokens {
    const int32_t *at; /* none negative */
    int64_t len;
} llm_cache_tokens;

enum {
    LLM_CACHE_NO_READ = 1, /* do not hit the cache; the blocks can be hit by others all the same */
    LLM_CACHE_REPORT = 2,  /* record events for hits, too */
    LLM_CACHE_HOLD = 4,    /* do not run before llm_cache_release; requests added later do not wait for it */
    /* The first two only with LLM_CACHE_KV_CONSUMER, the third with LLM_CACHE_KV_PRODUCER. */
    LLM_CACHE_LOAD_ASYNC = 8, /* `external` is loaded while the request waits and others run */
    LLM_CACHE_ASK = 16,    /* do not run before llm_cache_match; the request is in `queries` again when it has lost its
                              blocks, or nothing of its load came */
    LLM_CACHE_SEND = 32    /* keep the blocks when it has finished, until llm_cache_sent */
};

/*
 * An image, or other input whose placeholder tokens do not describe its content:
 * tokens offset to offset + length - 1 of the prompt. The hash is a text of 1 to LLM_CACHE_MAX_TEXT
 * bytes that is different for different contents; NULL and "" are LLM_CACHE_E_NULL.
 */
typedef struct llm_cache_item {
    const char *hash;
    int32_t offset;
    int32_t length; /* at least 1 */
} llm_cache_item;

typedef struct llm_cache_spec {
    uint32_t size;
    uint32_t flags;          /* LLM_CACHE_NO_READ and others */
    llm_cache_tokens tokens; /* the prompt: 1 to max_model_len - 1 */
    int32_t max_tokens;      /* most tokens to generate, at least 1 */
    int32_t min_tokens;      /* stop tokens are ignored before this many; at most max_tokens, and what max_model_len
                                leaves */
    /* A caller's struct may end here, or after any field below. */
    llm_cache_tokens stop; /* tokens after which it stops, end of sequence among them */
    const char *salt;      /* requests share blocks only under equal salts; NULL or "" means none. No salt may be the
                              name of an adapter: see llm_cache_add */
    const char *lora;      /* name of the adapter; NULL or "" means the base model */
    int64_t lora_id;       /* for events and max_loras; 0 means the base model */
    double arrival;        /* time in any unit; smaller comes first among equal priorities */
    int32_t priority;      /* smaller is more important */
    int32_t external;      /* tokens from the first one on that can be loaded from elsewhere */
    uint64_t user_data;    /* the caller's; it is in each row of the request */
    const llm_cache_item *items; /* by ascending offset, without overlaps; part of the hashes of the blocks that hold
                                    them */
    int64_t items_len;     /* at most LLM_CACHE_MAX_ITEMS */
    const uint8_t *is_embed; /* tokens.len bytes: 0 for tokens of items that take no embedding; NULL means all do */
} llm_cache_spec;

/*
 * Puts a request into the waiting queue.
 *
 * As in vLLM, the hash of a block contains the salt and the adapter's name as plain texts, without
 * their kinds. So the first block of a request for the base model with the salt "x" has the hash of
 * the same block of the adapter "x" without a salt, and each can hit the other. Give salts a prefix
 * that no adapter's name has. Hashes that differ would not be those of vLLM and of indexers that read
 * its events.
 */
int llm_cache_add(llm_cache cache, const llm_cache_spec *spec, llm_request *id);

/*
 * Ends requests in any state, also between schedule and update. It skips requests that have
 * finished; *aborted is the number of the others; aborted must not be NULL. If an id cannot be of
 * this cache, the call returns LLM_CACHE_E_REQUEST and ends none.
 */
int llm_cache_abort(llm_cache cache, const llm_request *ids, int64_t n, int64_t *aborted);

/* ---- A step ---- */

typedef struct llm_cache_ids {
    llm_request *at;
    int64_t cap, len;
} llm_cache_ids;

/* What the worker knows of a request. */
enum {
    LLM_CACHE_ROW_RUNNING = 0, /* its table except for the blocks of this row */
    LLM_CACHE_ROW_NEW = 1,     /* nothing; the step has the whole table */
    LLM_CACHE_ROW_RESUMED = 2  /* its tokens; it has new blocks, and the step has the whole table */
};

/* A scheduled request. */
typedef struct llm_cache_row {
    llm_request id;
    uint64_t user_data;
    int32_t kind;     /* LLM_CACHE_ROW_... */
    int32_t computed; /* tokens before this step */
    int32_t tokens;   /* to compute now, drafts included */
    int32_t drafts;
    int32_t samples; /* 1: this row ends at the request's last token, so sample for it; 0: do not */
    int32_t external; /* the last of `computed`: load their keys and values after the copies, before the row is
                         computed */
} llm_cache_row;

typedef struct llm_cache_rows {
    llm_cache_row *at;
    int64_t cap, len;
} llm_cache_rows;

/*
 * A pair of blocks whose bytes must be copied before the rows are computed. The request has a row in the step, except
 * with LLM_CACHE_AS_VLLM.
 */
typedef struct llm_cache_copy {
    int32_t src, dst;
    int32_t group;
    int32_t index; /* entry of the worker's table where dst goes; -1: none, the step has the whole table, or the step
                      preempts the request (with LLM_CACHE_AS_VLLM) */
    llm_request id;
} llm_cache_copy;

typedef struct llm_cache_copies {
    llm_cache_copy *at;
    int64_t cap, len;
} llm_cache_copies;

/*
 * A request whose keys and values are to be loaded while it waits: those of the
 * tokens from `computed` on, into the blocks of llm_cache_table (nothing into block 0).
 * No other request gets these blocks before llm_cache_received.
 */
typedef struct llm_cache_load {
    llm_request id;
    uint64_t user_data;
    int32_t computed; /* tokens that are in the cache already */
    int32_t external; /* tokens to load */
} llm_cache_load;

typedef struct llm_cache_loads {
    llm_cache_load *at;
    int64_t cap, len;
} llm_cache_loads;

/* A request with LLM_CACHE_ASK that waits for llm_cache_match. */
typedef struct llm_cache_query {
    llm_request id;
    uint64_t user_data;
    int32_t computed; /* tokens that are in the cache at present */
    int32_t reserved;
} llm_cache_query;

typedef struct llm_cache_queries {
    llm_cache_query *at;
    int64_t cap, len;
} llm_cache_queries;

/*
 * For a cache with LLM_CACHE_KV_PRODUCER and a LLM_CACHE_MAMBA group with LLM_CACHE_GROUP_ALIGN whose
 * blocks are larger than another group's: the state at the last end of such a smaller block in a request's
 * prompt, which lies inside a block of the Mamba group (vLLM: partial_tail_offloads). The block
 * has it after the step's copies. It is in no table, and it is kept until the blocks of
 * the request are free. A connector can send it, so that elsewhere `external` can be `tokens`.
 */
typedef struct llm_cache_tail {
    llm_request id;
    uint64_t user_data;
    int32_t group;
    int32_t block;
    int32_t tokens; /* of the prompt, before the state */
    int32_t reserved;
} llm_cache_tail;

typedef struct llm_cache_tails {
    llm_cache_tail *at;
    int64_t cap, len;
} llm_cache_tails;

/* An item to encode before the rows of the step are computed. */
typedef struct llm_cache_encoder_input {
    llm_request id;
    uint64_t user_data;
    int32_t row;  /* of the request in this step */
    int32_t item; /* index in items of its spec */
} llm_cache_encoder_input;

typedef struct llm_cache_encoder_inputs {
    llm_cache_encoder_input *at;
    int64_t cap, len;
} llm_cache_encoder_inputs;

typedef struct llm_cache_bytes {
    uint8_t *at;
    int64_t cap, len;
} llm_cache_bytes;

/*
 * What to compute. Where there is a capacity that always suffices, the field's comment
 * ends with it (G is the number of groups).
 *
 * blocks has the block ids of row 0 in group 0, 1, ..., then those of row 1, and
 * so on. Part i = row x G + group ends at block_ends[i] and goes into the request's
 * table from entry block_starts[i] on; what the table had from there on is replaced.
 */
typedef struct llm_cache_step {
    uint32_t size;
    int32_t tokens;             /* out: of all rows */
    llm_cache_rows rows;        /* max_num_seqs */
    llm_cache_i32s drafts;      /* of all rows, one after the other. -1 is padding: computed as a draft, never
                                   accepted; or, with LLM_CACHE_ASYNC, a placeholder (llm_cache_set_drafts).
                                   max_num_batched_tokens */
    llm_cache_i32s blocks;
    llm_cache_i64s block_starts; /* max_num_seqs x G */
    llm_cache_i64s block_ends;   /* max_num_seqs x G */
    llm_cache_i64s slots;        /* group g: `tokens` entries from g x tokens on, where the keys and values of each
                                    scheduled token go, in the order of rows; -1: nowhere. max_num_batched_tokens x G
                                    */
    llm_cache_copies copies;     /* in this order */
    llm_cache_i32s common;       /* by group: blocks that all running requests share at the beginning. G */
    /*
     * Since the last step; after llm_cache_step_failed those of the failed steps are listed again,
     * so an id can come twice. preemptions of llm_cache_stats does not count such repetitions.
     */
    llm_cache_ids preempted;     /* they have lost their tables */
    llm_cache_ids finished;      /* aborted ones included */
    /*
     * A caller's struct may end here, after queries, or after freed_encoder_outputs. If a step needs a
     * field that the struct lacks, the call returns LLM_CACHE_E_SIZE. Only `tails` may be lacking: it is then left out.
     */
    llm_cache_loads loads;       /* to begin; also in a step without rows */
    llm_cache_queries queries;   /* to answer: those reached in this step; without an answer they are listed again */
    llm_cache_encoder_inputs encoder_inputs;
    llm_cache_bytes freed_encoder_outputs; /* hashes of items whose outputs are to be dropped before encoder_inputs
                                              are computed, one after the other, each with its final 0; also in a step
                                              without rows */
    llm_cache_i32s zero;         /* with LLM_CACHE_ZERO_BLOCKS: blocks whose bytes are to be zeroed in all tensors
                                    before the copies and the rows; those that `loads` go into are not among them. An
                                    id can come twice. Also in a step without rows */
    llm_cache_tails tails;
} llm_cache_step;

/*
 * Schedules a step. rows is empty only if nothing can run before another call;
 * then do not call llm_cache_update. LLM_CACHE_E_ORDER if max_concurrent_batches
 * steps are in flight.
 *
 * LLM_CACHE_E_SMALL: the library has scheduled the step and keeps it, because its size is known
 * only then. Call again with arrays of at least len entries
 * to get the same step. LLM_CACHE_E_SIZE: the step needs a field that the struct
 * lacks; call again with a struct that has it. Until then the step is in flight, and llm_cache_update
 * returns LLM_CACHE_E_ORDER for it.
 */
int llm_cache_schedule(llm_cache cache, llm_cache_step *step);

/* Why a request has finished. */
enum {
    LLM_CACHE_STOPPED = 1, /* a stop token */
    LLM_CACHE_LENGTH = 2   /* as many tokens as it may have */
};

typedef struct llm_cache_done {
    llm_request id; /* no longer valid */
    uint64_t user_data;
    int32_t reason; /* LLM_CACHE_STOPPED or LLM_CACHE_LENGTH */
    int32_t reserved;
} llm_cache_done;

typedef struct llm_cache_dones {
    llm_cache_done *at;
    int64_t cap, len;
} llm_cache_dones;

/* What llm_cache_update did with a step. Both arrays must have at least as many entries as the step has rows. */
typedef struct llm_cache_outcome {
    uint32_t size;
    uint32_t reserved;    /* 0 */
    llm_cache_i32s kept;  /* sampled tokens that count, by row: those after a stop do not */
    llm_cache_dones done; /* requests that have finished, in the order of rows */
} llm_cache_outcome;

/*
 * Takes the tokens that the model sampled in the oldest step in flight: counts[i] tokens for
 * row i, one after the other in tokens. A row that does not sample has none, others have one, those
 * with drafts the accepted ones and one more. If a row that samples has none, its request goes back
 * to where it was before the step, and the row comes again. What later steps in flight sample for
 * that request does not count, also if it was preempted since. rows is the number of rows of the
 * step, n the sum of counts. LLM_CACHE_E_ORDER if no step is in flight.
 */
int llm_cache_update(llm_cache cache, const int32_t *counts, int64_t rows, const int32_t *tokens, int64_t n,
                     llm_cache_outcome *outcome);

/*
 * Reports that a step in flight, or a row of one, was not computed. It undoes all steps in flight,
 * because each depends on the previous one. Every request is where it was before the oldest of them,
 * and what they should have written cannot be hit. Requests that lost their blocks since, had blocks
 * to copy, or have a Mamba state, which was overwritten, wait and are computed again. The next row of
 * each request that had a row in these steps has its whole table. Items to encode or drop are listed
 * again, and so are blocks to zero, except those that were loaded since. Requests that continue to
 * run keep their drafts.
 */
int llm_cache_step_failed(llm_cache cache);

/* ---- Statistics and state ---- */

typedef struct llm_cache_stats {
    uint32_t size;
    int32_t reset; /* 1 if the cache was reset since the last call */
    /* now */
    int64_t running, waiting;    /* requests */
    int64_t free_blocks, blocks; /* without the null block */
    /* since the last call; queries and hits are tokens */
    int64_t requests, queries, hits;                     /* admitted for the first time */
    int64_t resumed, resumed_queries, resumed_hits;      /* admitted after a preemption, or again because a
                                                            load or a step failed or loaded blocks were taken */
    int64_t in_flight;   /* steps, now */
    int64_t preemptions; /* since the last call, as all that follow */
    int64_t sampled;     /* tokens that count */
    int64_t drafts, drafts_accepted;
    int64_t admitted;    /* requests, those that were preempted included */
    int64_t queue_ns;    /* sum of the times that these had waited */
    int64_t external_requests, external_queries, external_hits; /* admitted for the first time by a consumer: tokens
                                                                   that were not in the cache, and of these, loaded */
    int64_t resumed_external_requests, resumed_external_queries, resumed_external_hits; /* admitted again */
    int64_t loading, kept; /* requests, now: whose keys and values are being loaded; that have finished and whose
                              blocks are being loaded or sent */
    int64_t deferred_blocks; /* now: of requests that have ended, kept until the steps in flight are updated */
    int64_t encoder_taken, encoder_referenced; /* embeddings, now: that the worker keeps; of them, that requests still
                                                  read */
} llm_cache_stats;

/* Fills in stats and resets the counters. */
int llm_cache_statistics(llm_cache cache, llm_cache_stats *stats);

/* How many tokens of a request are computed, and how many it has. */
int llm_cache_progress(llm_cache cache, llm_request id, int64_t *computed, int64_t *tokens);

/* The block table of a request in a group; empty while it waits. */
int llm_cache_table(llm_cache cache, llm_request id, int32_t group, llm_cache_i32s *table);

/* ---- Planning memory ---- */

enum {
    LLM_CACHE_LAYER_KEYS_ONLY = 4, /* keys and values are the same numbers (MLA) */
    LLM_CACHE_LAYER_STRIDED = 8,   /* the kernel finds a block by a stride, so blocks can be padded */
    LLM_CACHE_LAYER_PAGE = 16,     /* not Mamba: a block of block_size tokens takes state_bytes, whatever the heads:
                                      padded (vLLM: page_size_padded), compressed (compress_ratio) or quantized with
                                      scales */
    LLM_CACHE_LAYER_HIDDEN = 32    /* LLM_CACHE_FULL: hidden states, one vector a token, for a model that drafts or
                                      another reader (vLLM: HiddenStateCacheSpec) */
};

enum {
    LLM_CACHE_PLAN_CROSS_LAYERS = 1, /* with several groups, the blocks of all layers of a group are side by side, so
                                        that a block is sent as one piece of memory (vLLM: enable_cross_layers_blocks)
                                        */
    LLM_CACHE_PLAN_FULL = 2 /* windows and chunks keep all tokens, so that all layers share a block table (vLLM:
                               disable_hybrid_kv_cache_manager). Done in any case where their pages cannot be
                               made as large as those of others */
};

/* What one layer keeps. */
typedef struct llm_cache_layer {
    int32_t kind;       /* LLM_CACHE_FULL and others; the fields up to flags as in llm_cache_group */
    int32_t block_size; /* requested; the plan can enlarge it */
    int32_t window;
    int32_t retained;
    int32_t chunk;
    int32_t num_speculative_blocks;
    int32_t flags;         /* LLM_CACHE_GROUP_... and LLM_CACHE_LAYER_... */
    int32_t kv_heads;      /* not Mamba */
    int32_t head_size;     /* numbers of a head */
    int32_t element_bytes; /* of a number, at most 16 */
    int64_t state_bytes;   /* Mamba: of a state; LLM_CACHE_LAYER_PAGE: of a block */
} llm_cache_layer;

typedef struct llm_cache_group_list {
    llm_cache_group *at;
    int64_t cap, len;
} llm_cache_group_list;

/* How memory is divided, as vLLM does. Capacities that suffice: the number of layers. */
typedef struct llm_cache_plan {
    uint32_t size;
    int32_t num_gpu_blocks;      /* out: for llm_cache_config, as are the groups; includes the null block */
    llm_cache_group_list groups; /* out: layers that share a block table */
    llm_cache_i32s layer_groups; /* out: the group of each layer */
    llm_cache_i32s layer_tensors; /* out: the tensor of each layer; layers of different groups share one and use
                                     different blocks of it: block b begins at b x bytes / num_gpu_blocks */
    llm_cache_i64s tensor_bytes; /* out */
    /* A caller's struct may end here. */
    int32_t max_model_len;        /* in: LLM_CACHE_E_MEMORY unless request_bytes fit without the null block (vLLM
                                     counts it) and llm_cache_add accepts a request of this length; 0: not checked */
    int32_t max_in_flight_tokens; /* in: as in llm_cache_config; 0 means max_model_len */
    int64_t request_bytes;        /* out: what one request of max_model_len takes; what num_gpu_blocks blocks take,
                                     divided by it, is vLLM's "maximum concurrency". Also with LLM_CACHE_E_MEMORY, as
                                     is longest; both are 0 if max_model_len is 0 */
    int32_t longest;              /* out: the longest request of at most max_model_len that fits; 0 means none */
    uint32_t flags;               /* in: LLM_CACHE_PLAN_...; the same for all workers */
    /* A caller's struct may end here; a packed plan is then LLM_CACHE_E_SIZE. */
    int64_t block_stride;         /* out: packed, there is one tensor, and block b of a layer begins at b x
                                     block_stride + its entry of layer_offsets; layers of different groups lie over
                                     each other and use different blocks. So with LLM_CACHE_PLAN_CROSS_LAYERS, and for
                                     LLM_CACHE_LAYER_KEYS_ONLY with windows whose pages differ (DeepSeek V4). 0: not
                                     packed */
    llm_cache_i64s layer_offsets; /* out: of each layer, -1 if another worker's; without entries if not packed */
    int32_t max_concurrent_batches; /* in: steps in flight, as in llm_cache_config: with more than one, a request of a
                                       Mamba group with LLM_CACHE_GROUP_ALIGN can take more blocks. 0 means 1 */
    int32_t reserved;             /* 0 */
} llm_cache_plan;

enum { LLM_CACHE_MAX_LAYERS = 4096, LLM_CACHE_MAX_WORKERS = 1024 };

/*
 * Divides `bytes` of memory among n layers. num_gpu_blocks above 0 is used in place
 * of what the bytes suffice for. LLM_CACHE_E_RANGE if the blocks of layers cannot
 * be made alike with at most LLM_CACHE_MAX_BLOCK_SIZE tokens, more than LLM_CACHE_MAX_GROUPS
 * groups result, or fewer than 2 blocks.
 */
int llm_cache_plan_memory(const llm_cache_layer *layers, int64_t n, int64_t bytes, int32_t num_gpu_blocks,
                          llm_cache_plan *plan);

/* A process that holds some layers of a model: a stage of a pipeline, or one of several that share its heads. */
typedef struct llm_cache_worker {
    int64_t bytes;         /* for keys and values */
    const int32_t *layers; /* indexes of the layers that it holds, ascending; what a layer keeps is this worker's
                              share */
    int64_t layers_len;    /* at least 1 */
} llm_cache_worker;

/*
 * llm_cache_plan_memory for several workers that use the same block tables (vLLM:
 * get_kv_cache_configs). Layers are grouped over the whole model, and all workers have as
 * many blocks as the one with the fewest, so num_gpu_blocks and groups of all plans
 * are equal, except LLM_CACHE_GROUP_EAGLE of a group of which a worker has no layer.
 * plans[w] is the plan of worker w; in its layer_groups and layer_tensors,
 * which have n entries, layers of other workers are -1.
 */
int llm_cache_plan_workers(const llm_cache_layer *layers, int64_t n, const llm_cache_worker *workers,
                           int64_t workers_len,
                           int32_t num_gpu_blocks, llm_cache_plan *const *plans);

/* ---- Held requests, forks, drafts ---- */

/*
 * Lets requests run that were added with LLM_CACHE_HOLD. It skips those that have finished or were
 * not held.
 */
int llm_cache_release(llm_cache cache, const llm_request *ids, int64_t n);

/*
 * Makes a request with the tokens of another one, for parallel sampling and
 * beam search. If the parent runs and fewer than max_num_seqs requests run, the child runs
 * and shares its blocks; the first of the two that writes to a shared block gets
 * a copy of it, in copies of the next step. Otherwise the child waits. last
 * replaces the last generated token; LLM_CACHE_E_RANGE if the parent has generated nothing
 * or the token is computed; negative keeps it. A stop token as last does not end the child.
 * The child inherits user_data, max_tokens, min_tokens, stop, salt, adapter, items and
 * priority; max_tokens counts what the parent has generated. It is not held, loads nothing and sends nothing.
 * LLM_CACHE_E_ORDER with a step in flight.
 */
int llm_cache_fork(llm_cache cache, llm_request parent, int32_t last, double arrival, llm_request *child);

/*
 * Gives requests draft tokens to verify in their next step: counts[i] for
 * ids[i], one after the other in tokens; n is the number of ids, total the sum
 * of counts. It skips requests that have finished, wait, have a row in flight, or whose prompt is
 * not complete. With LLM_CACHE_ASYNC drafts are
 * placeholders (-1) that the worker replaces; this call sets their number.
 */
int llm_cache_set_drafts(llm_cache cache, const llm_request *ids, const int32_t *counts, int64_t n,
                         const int32_t *tokens, int64_t total);

/* ---- Keys and values from elsewhere ---- */

/*
 * Sets that the first `external` tokens of a request can be loaded; flags is
 * LLM_CACHE_LOAD_ASYNC or 0. The call is used the next time that the request gets blocks, and again if
 * that step fails. If the request loses its blocks later, or nothing of its load came, nothing is loaded
 * before another call: with LLM_CACHE_ASK the request is in `queries` again, otherwise it runs without the load.
 * The call has no effect if the request has blocks.
 */
int llm_cache_match(llm_cache cache, llm_request id, int32_t external, uint32_t flags);

/*
 * Reports that loads of a step's `loads` are over: everything was loaded except the blocks
 * of llm_cache_load_failed. What was loaded can be hit from now on. A request that
 * was aborted since has kept its blocks until this call.
 * LLM_CACHE_E_REQUEST if one of them is not being loaded; then nothing has changed.
 */
int llm_cache_received(llm_cache cache, const llm_request *ids, int64_t n);

/* A row of a step in flight. */
typedef struct llm_cache_void_row {
    int32_t step; /* 0 is the oldest in flight, 1 the one after it */
    int32_t row;
} llm_cache_void_row;

typedef struct llm_cache_void_rows {
    llm_cache_void_row *at;
    int64_t cap, len;
} llm_cache_void_rows;

/* What a failed load affects. */
typedef struct llm_cache_load_failure {
    uint32_t size;
    uint32_t reserved;    /* 0 */
    llm_cache_ids affected; /* requests that have to compute tokens again */
    llm_cache_void_rows void_rows; /* rows that read a block that was not loaded, or one that a void row writes */
} llm_cache_load_failure;

/*
 * Reports blocks that were not loaded: of `loads` that are under way, or
 * of rows with `external` in the oldest step in flight. It must be called before
 * llm_cache_received and before the update of that step. The affected requests compute these
 * tokens themselves; to end them instead, abort them (vLLM's policy "fail").
 *
 * void_rows is complete: it has the rows of all steps in flight, in the order of steps and rows, also those of requests
 * that were preempted or aborted since; no other row reads what was not loaded. What a void row writes cannot be hit.
 * The worker may compute it or not; llm_cache_update takes any valid tokens for it and ignores them: `kept` is 0. (With
 * LLM_CACHE_AS_VLLM, as in vLLM, what void rows write can be hit, only rows with a failed block in their table
 * are void, and tokens of requests that were preempted since count.)
 *
 * The call skips blocks that no request uses. LLM_CACHE_E_SMALL: nothing has changed; call again with larger arrays.
 */
int llm_cache_load_failed(llm_cache cache, const int32_t *blocks, int64_t n, llm_cache_load_failure *failure);

/*
 * Reports that blocks of requests with LLM_CACHE_SEND were sent or will not be sent. Before that,
 * llm_cache_table and llm_cache_progress also return values for the finished request: its blocks
 * have its first `computed` tokens (none if it was aborted with steps in flight, or while it was loaded).
 * In a LLM_CACHE_MAMBA group, the state after these tokens is in block (computed - 1) / block_size of the table, but
 * not if a row of the request was in flight when it finished: that row writes a later state there. The blocks of
 * `tails` are right in any case. A request that was aborted while it was loaded is kept until this call and
 * llm_cache_received, in either order.
 * LLM_CACHE_E_REQUEST if one of them is not kept; then nothing has changed.
 */
int llm_cache_sent(llm_cache cache, const llm_request *ids, int64_t n);

/* ---- Events ---- */

/* What happened to the prefix cache. */
enum {
    LLM_CACHE_STORED = 0,  /* blocks can be hit from now on. Several blocks can have the same hash, which can be hit
                              until it is removed as often as it was stored (events of LLM_CACHE_REPORT do not count)
                              */
    LLM_CACHE_REMOVED = 1, /* one block, with one hash, cannot be hit any more */
    LLM_CACHE_CLEARED = 2  /* no block can be hit any more: a reset */
};

typedef struct llm_cache_hash {
    uint8_t bytes[32];
} llm_cache_hash;

/*
 * The fields after group are those of LLM_CACHE_STORED. Its tokens are those of all blocks from the parent on. Blocks
 * of a window or Mamba group that cannot be hit have tokens there but no hash, so there can be fewer hashes than
 * blocks of tokens, or none.
 */
typedef struct llm_cache_event {
    int32_t kind;
    int32_t group;
    int32_t block_size;
    int32_t has_parent;    /* 0 means the blocks start at token 0 */
    llm_cache_hash parent; /* of the block before them */
    int64_t lora_id;
    int64_t hashes_end; /* in the array of hashes, where those of the next event begin */
    int64_t tokens_end; /* in the array of tokens, likewise */
} llm_cache_event;

typedef struct llm_cache_event_list {
    llm_cache_event *at;
    int64_t cap, len;
} llm_cache_event_list;

typedef struct llm_cache_hashes {
    llm_cache_hash *at;
    int64_t cap, len;
} llm_cache_hashes;

typedef struct llm_cache_events {
    uint32_t size;
    uint32_t reserved; /* 0 */
    llm_cache_event_list events;
    llm_cache_hashes hashes;
    llm_cache_i32s tokens;
} llm_cache_events;

/*
 * Drains the events since the last call, for a cache with LLM_CACHE_EVENTS.
 * LLM_CACHE_E_SMALL: they are kept inside; the next call with larger arrays gets
 * the same ones, and a later one those since.
 */
int llm_cache_drain(llm_cache cache, llm_cache_events *events);

enum {
    LLM_CACHE_INT_HASHES = 1,  /* hashes as numbers of 64 bits (vLLM: VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES) */
    LLM_CACHE_EVENT_ARRAYS = 2 /* events as arrays of the fields that llm-d's indexer reads by position, as vLLM
                                  sent them until 2026; otherwise as maps */
};

/*
 * llm_cache_drain as one KVEventBatch in MessagePack, byte for byte as vLLM sends
 * it: with extra keys, group and kind of attention. seconds is the time of the
 * batch, rank the data parallel rank. len is 0 if there are no events. Each event
 * is drained once, by this call or by llm_cache_drain.
 */
int llm_cache_drain_msgpack(llm_cache cache, double seconds, int32_t rank, uint32_t flags, llm_cache_bytes *batch);

/* ---- Resetting, pausing, logging ---- */

/*
 * Forgets all cached prefixes. LLM_CACHE_E_BUSY if a request has blocks, unless
 * preempt is not 0: then all running requests lose theirs and wait, also with steps in
 * flight, whose updates drop what they must. Even then LLM_CACHE_E_BUSY while blocks are
 * loaded or sent, while a request whose load is over has not had its first row, or while a cache with
 * LLM_CACHE_KV_CONSUMER and max_concurrent_batches above 1 has requests in flight.
 */
int llm_cache_reset(llm_cache cache, int preempt);

/* What steps do not do. */
enum {
    LLM_CACHE_PAUSE_NONE = 0,
    LLM_CACHE_PAUSE_NEW = 1, /* no waiting request is admitted. Requests that run go on, also if their first row was in
                                a failed step; if one is preempted, it waits until the pause is over */
    LLM_CACHE_PAUSE_ALL = 2  /* nothing is scheduled */
};

/* Sets what steps do not do until another call, for example to change the model's weights (vLLM: PauseState). */
int llm_cache_pause(llm_cache cache, int32_t pause);

/*
 * Forgets all outputs of the encoder, for example because its weights have changed. The
 * worker must drop them, too. LLM_CACHE_E_ORDER with a step in flight.
 */
int llm_cache_reset_encoder(llm_cache cache);

/*
 * Calls hook for every failed call, with its code and detail, on the thread of
 * the call; NULL removes the hook. hook must not call the library. All caches of the process
 * have the same hook.
 */
typedef void (*llm_cache_log)(void *user, int error, const char *detail);
void llm_cache_set_log(llm_cache_log hook, void *user);

#ifdef __cplusplus
}
#endif

#endif /* LLM_CACHE_H */

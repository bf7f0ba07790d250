/*
 * attention - serves 24 requests with libllm_cache: its scheduler, its store of
 * keys and values, and its attention. The model is a transformer of two layers
 * built by hand, so that the answer is known beforehand: after a token it says
 * what stood after it earlier in the prompt.
 *
 *   cc -std=c11 attention.c -lllm_cache -o attention
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_attention.h"

enum {
    REQUESTS = 24,
    WORDS = 128, /* tokens of the vocabulary, and the size of the one head */
    BLOCKS = 22, /* so few that requests are preempted */
    BLOCK_SIZE = 16,
    MAX_SEQS = 6,
    MAX_TOKENS = 96,
    MODEL_LEN = 128
};

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n%s\n", __FILE__, __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

struct request {
    llm_request id;
    int prompt, n, finished;
    int32_t tokens[MODEL_LEN];
};

static struct request requests[REQUESTS];

static struct request *find(llm_request id) {
    for (int i = 0; i < REQUESTS; i++) {
        if (requests[i].id == id) {
            return &requests[i];
        }
    }
    exit(1);
}

static uint32_t seed = 1;
static int any(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 16) % n;
}

/* A code of each position: 128 times plus or minus 1/sqrt(128). */
static float codes[MODEL_LEN][WORDS];

/* Adds a request. Its prompt is different tokens, the first 40 the same as in all prompts, and then one of them again. */
static void add(llm_cache cache, struct request *r) {
    int n = 50 + any(40);
    for (int i = 0; i < WORDS; i++) {
        r->tokens[i] = (i * 37 + 5) % WORDS;
    }
    for (int i = 40; i < WORDS; i++) {
        int j = i + any(WORDS - i);
        int32_t t = r->tokens[i];
        r->tokens[i] = r->tokens[j], r->tokens[j] = t;
    }
    r->tokens[n] = r->tokens[any(n - 1)];
    r->prompt = r->n = n + 1;
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {r->tokens, r->n}, .max_tokens = 5 + any(30)};
    CHECK(llm_cache_add(cache, &spec, &r->id) == LLM_CACHE_OK);
}

/* Queries, keys, values and outputs of the step's tokens in a layer. */
static float q[MAX_TOKENS][WORDS], k[MAX_TOKENS][WORDS], v[MAX_TOKENS][WORDS], out[MAX_TOKENS][WORDS];

static void layer(llm_kvstore store, int i, int64_t tokens) {
    llm_tensor keys = {.at = k, .rows = tokens, .stride = WORDS}, values = {.at = v, .rows = tokens, .stride = WORDS};
    llm_tensor queries = {.at = q, .rows = tokens, .stride = WORDS}, outputs = {.at = out, .rows = tokens, .stride = WORDS};
    llm_attention_options options = {.size = sizeof options, .scale = 1};
    CHECK(llm_kvstore_write(store, i, &keys, &values, NULL) == LLM_CACHE_OK);
    CHECK(llm_kvstore_attend(store, i, 1, &queries, &outputs, &options) == LLM_CACHE_OK);
}

/* Computes the rows of a step, and returns the number of sampled tokens. */
static int64_t run_model(llm_kvstore store, const llm_cache_step *step, int32_t *counts, int32_t *sampled) {
    int64_t n = 0;
    memset(q, 0, sizeof q), memset(v, 0, sizeof v);
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        for (int p = row->computed; p < row->computed + row->tokens; p++, n++) {
            for (int d = 0; d < WORDS; d++) { /* the query finds the position before */
                q[n][d] = p > 0 ? 100 * codes[p - 1][d] : 0;
                k[n][d] = codes[p][d];
            }
            v[n][find(row->id)->tokens[p]] = 1;
        }
    }
    layer(store, 0, n);
    int64_t next = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        for (int p = step->rows.at[i].computed, left = step->rows.at[i].tokens; left > 0; p++, left--, next++) {
            for (int d = 0; d < WORDS; d++) {
                k[next][d] = p > 0 ? out[next][d] : 0; /* the token at the position before */
                q[next][d] = 40 * v[next][d];          /* finds where that is this token */
            }
        }
    }
    layer(store, 1, n);
    int64_t at = 0, said = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        at += row->tokens;
        counts[i] = row->computed + row->tokens == find(row->id)->n;
        if (counts[i]) {
            int best = 0;
            for (int d = 1; d < WORDS; d++) {
                best = out[at - 1][d] > out[at - 1][best] ? d : best;
            }
            sampled[said++] = best;
        }
    }
    return said;
}

/* Each token of an answer must be what followed the token before it. */
static void take(const llm_cache_step *step, const int32_t *counts, const int32_t *sampled, const llm_cache_outcome *outcome) {
    for (int64_t i = 0; i < step->rows.len; i++) {
        struct request *r = find(step->rows.at[i].id);
        for (int32_t c = 0; c < counts[i]; c++) {
            int p = 0;
            while (r->tokens[p] != r->tokens[r->n - 1]) {
                p++;
            }
            CHECK(r->tokens[p + 1] == *sampled);
            r->tokens[r->n++] = *sampled++;
        }
    }
    for (int64_t i = 0; i < outcome->done.len; i++) {
        find(outcome->done.at[i].id)->finished = 1;
    }
}

int main(void) {
    for (int p = 0; p < MODEL_LEN; p++) {
        for (int d = 0; d < WORDS; d++) {
            codes[p][d] = any(2) ? 0.0883883f : -0.0883883f;
        }
    }
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = BLOCK_SIZE,
        .max_num_seqs = MAX_SEQS, .max_num_batched_tokens = MAX_TOKENS, .max_model_len = MODEL_LEN,
    };
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == LLM_CACHE_OK);
    llm_kvstore_config memory = {
        .size = sizeof memory, .layers = 2, .dtype = LLM_F16, .layout = LLM_LAYOUT_TILE, .blocks = BLOCKS,
        .block_size = BLOCK_SIZE, .kv_heads = 1, .head_size = WORDS, .threads = 2,
    };
    llm_kvstore store;
    CHECK(llm_kvstore_open(&memory, &store) == LLM_CACHE_OK);

    llm_cache_row rows[MAX_SEQS];
    llm_cache_copy copies[MAX_SEQS];
    llm_request preempted[REQUESTS], finished[REQUESTS];
    int32_t blocks[MAX_SEQS * MODEL_LEN / BLOCK_SIZE], drafts[1], common[1], counts[MAX_SEQS], sampled[MAX_SEQS], kept[MAX_SEQS];
    int64_t starts[MAX_SEQS], ends[MAX_SEQS], slots[MAX_TOKENS];
    llm_cache_done done[MAX_SEQS];
    llm_cache_step step = {
        .size = sizeof step, .rows = {.at = rows, .cap = MAX_SEQS}, .drafts = {.at = drafts, .cap = 1},
        .blocks = {.at = blocks, .cap = sizeof blocks / sizeof *blocks}, .block_starts = {.at = starts, .cap = MAX_SEQS},
        .block_ends = {.at = ends, .cap = MAX_SEQS}, .slots = {.at = slots, .cap = MAX_TOKENS}, .copies = {.at = copies, .cap = MAX_SEQS},
        .common = {.at = common, .cap = 1}, .preempted = {.at = preempted, .cap = REQUESTS}, .finished = {.at = finished, .cap = REQUESTS},
    };
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = {.at = kept, .cap = MAX_SEQS}, .done = {.at = done, .cap = MAX_SEQS}};
    int64_t recalled = 0, preemptions = 0;
    for (int i = 0; i < REQUESTS; i++) {
        add(cache, &requests[i]);
    }
    for (;;) {
        CHECK(llm_cache_schedule(cache, &step) == LLM_CACHE_OK);
        preemptions += step.preempted.len;
        if (step.rows.len == 0) {
            break;
        }
        CHECK(llm_kvstore_begin(store, &step) == LLM_CACHE_OK);
        int64_t n = run_model(store, &step, counts, sampled);
        CHECK(llm_cache_update(cache, counts, step.rows.len, sampled, n, &outcome) == LLM_CACHE_OK);
        take(&step, counts, sampled, &outcome);
        recalled += n;
    }
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(requests[i].finished);
    }
    llm_cache_stats stats = {.size = sizeof stats};
    CHECK(llm_cache_statistics(cache, &stats) == LLM_CACHE_OK);
    CHECK(stats.hits > 0 && preemptions > 0);
    printf("%d requests: %lld tokens recalled from the prompts, all right; %lld tokens hit, %lld preemptions\n", REQUESTS,
           (long long)recalled, (long long)stats.hits, (long long)preemptions);
    CHECK(llm_kvstore_close(store) == LLM_CACHE_OK);
    CHECK(llm_cache_close(cache) == LLM_CACHE_OK);
    return 0;
}

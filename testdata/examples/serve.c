/*
 * serve - serves 64 requests with libllm_cache, with no model: a "model" that
 * computes, for every position, a number that depends on all tokens up to it,
 * and keeps it in key-value memory where the cache says. After every step each
 * scheduled request must find exactly its own numbers through its block table.
 *
 *   cc -std=c11 serve.c -lllm_cache -o serve
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_cache.h"

enum {
    REQUESTS = 64,
    SYSTEM_PROMPTS = 4,
    BLOCKS = 64, /* so few that requests lose theirs now and then */
    BLOCK_SIZE = 16,
    MAX_SEQS = 16,
    MAX_TOKENS = 256,
    MODEL_LEN = 256,
    FORK_AFTER = 12 /* steps */
};

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n%s\n", __FILE__, __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* What the worker knows of a request: only what the steps contained. */
struct request {
    llm_request id;
    int prompt, n, most;
    int finished;
    int32_t tokens[MODEL_LEN];
    int32_t table[MODEL_LEN / BLOCK_SIZE];
};

static struct request requests[REQUESTS + 1]; /* and one child */
static int added;

static uint64_t memory[BLOCKS][BLOCK_SIZE]; /* the keys and values */

static struct request *find(llm_request id) {
    for (int i = 0; i < added; i++) {
        if (requests[i].id == id) {
            return &requests[i];
        }
    }
    fprintf(stderr, "no request has the id %llx\n", (unsigned long long)id);
    exit(1);
}

/* The number of a position, from that of the position before. */
static uint64_t next(uint64_t before, int32_t token) {
    return (before ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u + 1;
}

/* Request i: a system prompt that others have too, and a tail of its own. */
static void add(llm_cache cache, int i) {
    struct request *r = &requests[added++];
    r->n = r->prompt = 40 + i * 7 % 60;
    r->most = 10 + i * 5 % 40;
    for (int p = 0; p < r->n; p++) {
        r->tokens[p] = p < 36 ? 1000 * (i % SYSTEM_PROMPTS) + p : 10000 + 100 * i + p;
    }
    llm_cache_spec spec = {
        .size = sizeof spec, .tokens = {r->tokens, r->n}, .max_tokens = r->most, .arrival = i,
    };
    CHECK(llm_cache_add(cache, &spec, &r->id) == LLM_CACHE_OK);
}

/* The child gets another last token than its parent. */
static void fork_request(llm_cache cache, struct request *parent) {
    struct request *child = &requests[added++];
    *child = *parent;
    child->tokens[child->n - 1] = 77777;
    CHECK(llm_cache_fork(cache, parent->id, 77777, REQUESTS, &child->id) == LLM_CACHE_OK);
}

/* Makes an array as large as it has to be. */
#define GROW(a)                                                         \
    do {                                                                \
        if ((a).cap < (a).len) {                                        \
            (a).cap = 2 * (a).len;                                      \
            (a).at = realloc((a).at, (size_t)(a).cap * sizeof *(a).at); \
            CHECK((a).at != NULL);                                      \
        }                                                               \
    } while (0)

static void schedule(llm_cache cache, llm_cache_step *step) {
    int error;
    while ((error = llm_cache_schedule(cache, step)) == LLM_CACHE_E_SMALL) {
        GROW(step->rows);
        GROW(step->drafts);
        GROW(step->blocks);
        GROW(step->block_starts);
        GROW(step->block_ends);
        GROW(step->slots);
        GROW(step->copies);
        GROW(step->common);
        GROW(step->preempted);
        GROW(step->finished);
        /* Empty here; with a connector, an encoder or blocks to zero, a loop that does not grow them never ends. */
        GROW(step->loads);
        GROW(step->queries);
        GROW(step->encoder_inputs);
        GROW(step->freed_encoder_outputs);
        GROW(step->zero);
        GROW(step->tails);
    }
    CHECK(error == LLM_CACHE_OK);
}

static void free_step(llm_cache_step *step) {
    free(step->rows.at);
    free(step->drafts.at);
    free(step->blocks.at);
    free(step->block_starts.at);
    free(step->block_ends.at);
    free(step->slots.at);
    free(step->copies.at);
    free(step->common.at);
    free(step->preempted.at);
    free(step->finished.at);
    free(step->loads.at);
    free(step->queries.at);
    free(step->encoder_inputs.at);
    free(step->freed_encoder_outputs.at);
    free(step->zero.at);
    free(step->tails.at);
}

/* Copies come first: what they save may be overwritten in this step. */
static void copy_blocks(const llm_cache_step *step) {
    for (int64_t i = 0; i < step->copies.len; i++) {
        const llm_cache_copy *c = &step->copies.at[i];
        memcpy(memory[c->dst], memory[c->src], sizeof memory[0]);
        if (c->index >= 0) {
            find(c->id)->table[c->index] = c->dst;
        }
    }
}

/* Computes the rows, and returns the number of sampled tokens. */
static int64_t run_model(const llm_cache_step *step, int32_t *counts, int32_t *sampled) {
    int64_t block = 0, slot = 0, n = 0;
    for (int64_t i = 0; i < step->rows.len; i++) { /* one group, so part i is row i */
        struct request *r = find(step->rows.at[i].id);
        int64_t entry = step->block_starts.at[i];
        for (; block < step->block_ends.at[i]; block++) {
            CHECK(entry < MODEL_LEN / BLOCK_SIZE);
            r->table[entry++] = step->blocks.at[block];
        }
    }
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        struct request *r = find(row->id);
        uint64_t value = 0;
        CHECK(row->computed + row->tokens <= r->n);
        for (int p = 0; p < row->computed + row->tokens; p++) {
            value = next(value, r->tokens[p]);
            if (p >= row->computed) {
                int64_t s = step->slots.at[slot++];
                CHECK(s == (int64_t)r->table[p / BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE);
                memory[s / BLOCK_SIZE][s % BLOCK_SIZE] = value;
            }
        }
        counts[i] = row->computed + row->tokens == r->n;
        if (counts[i]) {
            sampled[n++] = (int32_t)(value >> 40) % 5000;
        }
    }
    CHECK(slot == step->tokens && slot == step->slots.len);
    return n;
}

/* Each row reads its own tokens through its table, and the cache's table is the worker's. */
static void attend(llm_cache cache, const llm_cache_step *step) {
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        struct request *r = find(row->id);
        uint64_t value = 0;
        for (int p = 0; p < row->computed + row->tokens; p++) {
            value = next(value, r->tokens[p]);
            CHECK(memory[r->table[p / BLOCK_SIZE]][p % BLOCK_SIZE] == value);
        }
        int32_t blocks[MODEL_LEN / BLOCK_SIZE];
        llm_cache_i32s table = {.at = blocks, .cap = MODEL_LEN / BLOCK_SIZE};
        CHECK(llm_cache_table(cache, row->id, 0, &table) == LLM_CACHE_OK);
        CHECK(memcmp(blocks, r->table, (size_t)table.len * sizeof blocks[0]) == 0);
    }
}

/* Enters what counts of the sampled tokens. */
static void take(const llm_cache_step *step, const int32_t *counts, const int32_t *sampled, const llm_cache_outcome *outcome) {
    int64_t at = 0;
    CHECK(outcome->kept.len == step->rows.len);
    for (int64_t i = 0; i < step->rows.len; i++) {
        struct request *r = find(step->rows.at[i].id);
        CHECK(outcome->kept.at[i] == counts[i]);
        for (int32_t k = 0; k < counts[i]; k++) {
            r->tokens[r->n++] = sampled[at++];
        }
    }
    for (int64_t i = 0; i < outcome->done.len; i++) {
        struct request *r = find(outcome->done.at[i].id);
        CHECK(outcome->done.at[i].reason == LLM_CACHE_LENGTH && r->n == r->prompt + r->most);
        r->finished = 1;
    }
}

int main(void) {
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = BLOCK_SIZE,
        .max_num_seqs = MAX_SEQS, .max_num_batched_tokens = MAX_TOKENS, .max_model_len = MODEL_LEN,
    };
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == LLM_CACHE_OK);

    int32_t counts[MAX_SEQS], sampled[MAX_SEQS], kept[MAX_SEQS];
    llm_cache_done done[MAX_SEQS];
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = {.at = kept, .cap = MAX_SEQS}, .done = {.at = done, .cap = MAX_SEQS}};
    llm_cache_step step = {.size = sizeof step};
    int64_t steps = 0, tokens = 0, copies = 0, preemptions = 0;
    for (int arrived = 0, forked = 0;; steps++) {
        for (int most = 3; arrived < REQUESTS && most > 0; most--) { /* three arrive in each step */
            add(cache, arrived++);
        }
        schedule(cache, &step);
        preemptions += step.preempted.len;
        if (step.rows.len == 0) {
            break;
        }
        copy_blocks(&step);
        int64_t n = run_model(&step, counts, sampled);
        attend(cache, &step);
        CHECK(llm_cache_update(cache, counts, step.rows.len, sampled, n, &outcome) == LLM_CACHE_OK);
        take(&step, counts, sampled, &outcome);
        tokens += step.tokens;
        copies += step.copies.len;
        /* Someone in the middle of a block, so that the child or the parent gets a copy of it. */
        for (int64_t i = 0; !forked && steps > FORK_AFTER && step.rows.len < MAX_SEQS && i < step.rows.len; i++) {
            struct request *r = find(step.rows.at[i].id);
            if (!r->finished && counts[i] && r->n % BLOCK_SIZE > 2) {
                fork_request(cache, r);
                forked = 1;
            }
        }
    }

    for (int i = 0; i < added; i++) {
        CHECK(requests[i].finished);
    }
    llm_cache_stats stats = {.size = sizeof stats};
    CHECK(llm_cache_statistics(cache, &stats) == LLM_CACHE_OK);
    CHECK(added == REQUESTS + 1 && copies == 1 && preemptions > 0);
    CHECK(stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.blocks);
    CHECK(stats.requests == REQUESTS && stats.hits > 0 && stats.resumed > 0);
    printf("%d requests and a fork of one: %lld steps, %lld tokens computed, %lld block copied, %lld preemptions\n", REQUESTS,
           (long long)steps, (long long)tokens, (long long)copies, (long long)preemptions);
    printf("prefix cache: %lld of %lld prompt tokens hit; after a preemption %lld of %lld\n", (long long)stats.hits,
           (long long)stats.queries, (long long)stats.resumed_hits, (long long)stats.resumed_queries);
    CHECK(llm_cache_close(cache) == LLM_CACHE_OK);
    free_step(&step);
    return 0;
}

/* cache_check.h - what the guest programs of libllm_cache share. */
#ifndef CACHE_CHECK_H
#define CACHE_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_cache.h"

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

/* Both are evaluated once, and shown. */
#define EXPECT(code, call)                                                                                         \
    do {                                                                                                           \
        int got_ = (call);                                                                                         \
        if (got_ != (code)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s is %d (%s; %s), not %s\n", __FILE__, __LINE__, #call, got_,                  \
                    llm_cache_error_text(got_), llm_cache_error_detail(), #code);                                  \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)
#define OK(call) EXPECT(LLM_CACHE_OK, call)

enum { ROOM = 4096 };

static inline void *entries(size_t size) {
    void *at = calloc(ROOM, size);
    CHECK(at != NULL);
    return at;
}

#define GIVE(a) ((a).at = entries(sizeof *(a).at), (a).cap = ROOM)
#define TAKE(a) (free((a).at), (a).at = NULL, (a).cap = 0)

static inline llm_cache_step step_new(void) {
    llm_cache_step s = {.size = sizeof s};
    GIVE(s.rows), GIVE(s.drafts), GIVE(s.blocks), GIVE(s.block_starts), GIVE(s.block_ends), GIVE(s.slots);
    GIVE(s.copies), GIVE(s.common), GIVE(s.preempted), GIVE(s.finished), GIVE(s.loads), GIVE(s.queries);
    GIVE(s.encoder_inputs), GIVE(s.freed_encoder_outputs), GIVE(s.zero), GIVE(s.tails);
    return s;
}

static inline void step_free(llm_cache_step *s) {
    TAKE(s->rows), TAKE(s->drafts), TAKE(s->blocks), TAKE(s->block_starts), TAKE(s->block_ends), TAKE(s->slots);
    TAKE(s->copies), TAKE(s->common), TAKE(s->preempted), TAKE(s->finished), TAKE(s->loads), TAKE(s->queries);
    TAKE(s->encoder_inputs), TAKE(s->freed_encoder_outputs), TAKE(s->zero), TAKE(s->tails);
}

static inline llm_cache_outcome outcome_new(void) {
    llm_cache_outcome o = {.size = sizeof o};
    GIVE(o.kept), GIVE(o.done);
    return o;
}

static inline void outcome_free(llm_cache_outcome *o) { TAKE(o->kept), TAKE(o->done); }

static inline llm_cache_config config_small(void) {
    llm_cache_config c = {.size = sizeof c, .num_gpu_blocks = 100, .block_size = 16, .max_num_seqs = 8, .max_num_batched_tokens = 512, .max_model_len = 512};
    return c;
}

static inline llm_cache opened(const llm_cache_config *config) {
    llm_cache cache = 0;
    OK(llm_cache_open(config, &cache));
    CHECK(cache != 0);
    return cache;
}

/* A request of n tokens from first on. */
static inline llm_request request(llm_cache cache, int32_t first, int n, int most) {
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    CHECK(tokens != NULL);
    for (int i = 0; i < n; i++) {
        tokens[i] = first + i;
    }
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, n}, .max_tokens = most};
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    CHECK(id != 0);
    free(tokens);
    return id;
}

/* Samples the token 5 for each row whose tokens are all computed. */
static inline void sample(llm_cache cache, const llm_cache_step *s, llm_cache_outcome *o) {
    int32_t *counts = entries(sizeof *counts), *tokens = entries(sizeof *tokens);
    int64_t n = 0;
    for (int64_t i = 0; i < s->rows.len; i++) {
        int64_t computed = 0, all = 0;
        int gone = llm_cache_progress(cache, s->rows.at[i].id, &computed, &all);
        counts[i] = !gone && computed == all;
        if (counts[i]) {
            tokens[n++] = 5;
        }
    }
    OK(llm_cache_update(cache, counts, s->rows.len, tokens, n, o));
    free(counts), free(tokens);
}

#endif

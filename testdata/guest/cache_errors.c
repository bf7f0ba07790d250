/*
 * cache_errors - every error code but the one for the library's own mistakes, by
 * arguments that are wrong, hostile or late; after each the cache is as it was.
 */
#include "cache_check.h"

static llm_cache_step step;
static llm_cache_outcome outcome;
static unsigned char zeros[8192];

static void texts(void) {
    for (int e = LLM_CACHE_E_GPU; e <= LLM_CACHE_OK; e++) {
        CHECK(strlen(llm_cache_error_text(e)) > 5);
        for (int other = LLM_CACHE_E_GPU - 1; other < e; other++) {
            CHECK(strcmp(llm_cache_error_text(e), llm_cache_error_text(other)) != 0);
        }
    }
    CHECK(strcmp(llm_cache_error_text(1), llm_cache_error_text(-1000)) == 0);
    CHECK(strcmp(llm_cache_error_detail(), "") == 0);
    llm_cache_config none = config_small();
    none.num_gpu_blocks = -7;
    llm_cache cache;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_open(&none, &cache));
    CHECK(strstr(llm_cache_error_detail(), "num_gpu_blocks is -7") != NULL);
}

static void configs(void) {
    llm_cache cache = 99;
    const llm_cache_config good = config_small();
    EXPECT(LLM_CACHE_E_NULL, llm_cache_open(NULL, &cache));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_open(&good, NULL));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_open(&good, (llm_cache *)(void *)&good.hash_seed));
    EXPECT(LLM_CACHE_E_ALIGN, llm_cache_open((const llm_cache_config *)(const void *)(zeros + 1), &cache));
#define BAD(field, value)                                           \
    do {                                                            \
        llm_cache_config c = config_small();                        \
        c.field = (value);                                          \
        EXPECT(LLM_CACHE_E_RANGE, llm_cache_open(&c, &cache));      \
    } while (0)
    const int32_t wrong[] = {INT32_MIN, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        BAD(num_gpu_blocks, wrong[i]);
        BAD(block_size, wrong[i]);
        BAD(max_model_len, wrong[i]);
        BAD(policy, wrong[i]);
        BAD(hash, wrong[i]);
        BAD(num_lookahead_tokens, wrong[i]);
        BAD(num_speculative_tokens, wrong[i]);
        BAD(scheduler_block_size, wrong[i]);
        BAD(groups_len, wrong[i]);
    }
    BAD(num_gpu_blocks, 0);
    BAD(num_gpu_blocks, 1);
    BAD(num_gpu_blocks, LLM_CACHE_MAX_BLOCKS + 1);
    BAD(block_size, 0);
    BAD(max_num_seqs, 0);
    BAD(max_num_seqs, -1);
    BAD(max_num_batched_tokens, 0);
    BAD(max_num_batched_tokens, INT32_MIN);
    BAD(long_prefill_token_threshold, -1);
    BAD(watermark, -0.1);
    BAD(watermark, 1.1);
    BAD(watermark, (double)0 / (double)zeros[0]);
    BAD(flags, 1u << 31);
    BAD(flags, 16); /* of version 1, the default now */
    BAD(pipeline_parallel_size, -1);
    BAD(pipeline_parallel_size, 64);
    BAD(max_concurrent_batches, -1);
    BAD(max_concurrent_batches, 65);
    BAD(max_in_flight_tokens, -1);
    BAD(max_loras, -1);
    BAD(encoder_cache_size, -1);
    BAD(max_num_encoder_input_tokens, 1);
    BAD(retention_interval, -2);
    BAD(retention_interval, 16);
    BAD(scheduler_block_size, 5);
    BAD(groups_len, INT64_MAX);
    BAD(groups_len, INT64_MIN);
    char *text = malloc(LLM_CACHE_MAX_TEXT + 2);
    CHECK(text != NULL);
    memset(text, 'x', LLM_CACHE_MAX_TEXT + 1);
    text[LLM_CACHE_MAX_TEXT + 1] = '\0';
    BAD(hash_seed, text);
    free(text);
    llm_cache_config c = config_small();
    c.groups_len = 1;
    EXPECT(LLM_CACHE_E_NULL, llm_cache_open(&c, &cache));
    llm_cache_group groups[2] = {{.block_size = 16}, {.block_size = 32}};
    c.groups = groups;
    c.groups_len = 2;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_open(&c, &cache)); /* block_size as well */
    c.block_size = 0;
#define BAD_GROUP(field, value)                                \
    do {                                                       \
        llm_cache_group before = groups[1];                    \
        groups[1].field = (value);                             \
        EXPECT(LLM_CACHE_E_RANGE, llm_cache_open(&c, &cache)); \
        groups[1] = before;                                    \
    } while (0)
    BAD_GROUP(kind, -1);
    BAD_GROUP(kind, 4);
    BAD_GROUP(kind, LLM_CACHE_SLIDING_WINDOW); /* without a window */
    BAD_GROUP(kind, LLM_CACHE_CHUNKED_LOCAL);
    BAD_GROUP(block_size, 0);
    BAD_GROUP(block_size, INT32_MIN);
    groups[0].block_size = 65536;
    BAD_GROUP(block_size, 65521); /* a prime: the common multiple is too large */
    groups[0].block_size = 16;
    BAD_GROUP(num_speculative_blocks, -1);
    BAD_GROUP(num_speculative_blocks, INT32_MAX);
    BAD_GROUP(flags, 4);
    BAD_GROUP(reserved, 1);
    c.groups = (const llm_cache_group *)(const void *)(zeros + 2);
    EXPECT(LLM_CACHE_E_ALIGN, llm_cache_open(&c, &cache));
    CHECK(cache == 99);
}

static void handles(void) {
    const llm_cache_config config = config_small();
    llm_cache a = opened(&config), b = opened(&config), gone = opened(&config);
    OK(llm_cache_close(gone));
    const llm_cache bad[] = {0, gone, 1, a + 1000, ~(llm_cache)0, (llm_cache)1 << 63};
    llm_request id;
    int64_t n, m;
    llm_cache_i32s table = {.at = NULL};
    llm_cache_stats stats = {.size = sizeof stats};
    llm_cache_events events = {.size = sizeof events};
    llm_cache_spec spec = {.size = sizeof spec};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_close(bad[i]));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_add(bad[i], &spec, &id));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_fork(bad[i], 1, -1, 0, &id));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_abort(bad[i], &id, 0, &n));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_progress(bad[i], 1, &n, &m));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_schedule(bad[i], &step));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_update(bad[i], NULL, 0, NULL, 0, &outcome));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_set_drafts(bad[i], NULL, NULL, 0, NULL, 0));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_table(bad[i], 1, 0, &table));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_statistics(bad[i], &stats));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_drain(bad[i], &events));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_reset(bad[i], 0));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_step_failed(bad[i]));
        EXPECT(LLM_CACHE_E_HANDLE, llm_cache_release(bad[i], NULL, 0));
    }
    /* The first request of each has the same place, but not the same id. */
    llm_request of_a = request(a, 1, 20, 2), of_b = request(b, 1, 20, 2);
    CHECK(of_a != of_b);
    int64_t aborted = -1;
    OK(llm_cache_progress(a, of_a, &n, &m));
    llm_request old = request(a, 1, 20, 2);
    OK(llm_cache_abort(a, &old, 1, &aborted));
    CHECK(aborted == 1);
    OK(llm_cache_abort(a, &old, 1, &aborted)); /* it has finished: skipped */
    CHECK(aborted == 0);
    const llm_request strange[] = {of_b, 0, 1, ~(llm_request)0, old};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        EXPECT(LLM_CACHE_E_REQUEST, llm_cache_progress(a, strange[i], &n, &m));
        EXPECT(LLM_CACHE_E_REQUEST, llm_cache_table(a, strange[i], 0, &table));
        EXPECT(LLM_CACHE_E_REQUEST, llm_cache_fork(a, strange[i], -1, 0, &id));
        if (strange[i] != old) {
            const llm_request two[] = {of_a, strange[i]};
            int32_t counts[] = {0, 0};
            EXPECT(LLM_CACHE_E_REQUEST, llm_cache_abort(a, two, 2, &aborted));
            EXPECT(LLM_CACHE_E_REQUEST, llm_cache_release(a, two, 2));
            OK(llm_cache_progress(a, of_a, &n, &m)); /* it was not aborted */
            EXPECT(LLM_CACHE_E_REQUEST, llm_cache_set_drafts(a, two, counts, 2, NULL, 0));
        }
    }
    OK(llm_cache_close(a));
    OK(llm_cache_close(b));
}

static void requests(void) {
    const llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    int32_t tokens[600];
    for (int i = 0; i < 600; i++) {
        tokens[i] = i;
    }
    llm_request id = 99;
    const llm_cache_spec good = {.size = sizeof good, .tokens = {tokens, 40}, .max_tokens = 4};
    EXPECT(LLM_CACHE_E_NULL, llm_cache_add(cache, NULL, &id));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_add(cache, &good, NULL));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_add(cache, &good, (llm_request *)(void *)&good.lora_id));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_add(cache, &good, (llm_request *)(void *)&tokens[2]));
#define BAD_SPEC(code, field, ...)                       \
    do {                                                 \
        llm_cache_spec s = good;                         \
        s.field = __VA_ARGS__;                           \
        EXPECT(code, llm_cache_add(cache, &s, &id));     \
    } while (0)
    BAD_SPEC(LLM_CACHE_E_NULL, tokens.at, NULL);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, 0);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, -1);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, 512);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, INT64_MAX);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, INT64_MIN);
    BAD_SPEC(LLM_CACHE_E_RANGE, tokens.len, (int64_t)1 << 39);
    BAD_SPEC(LLM_CACHE_E_RANGE, max_tokens, 0);
    BAD_SPEC(LLM_CACHE_E_RANGE, max_tokens, INT32_MIN);
    BAD_SPEC(LLM_CACHE_E_RANGE, min_tokens, -1);
    BAD_SPEC(LLM_CACHE_E_RANGE, min_tokens, 5); /* more than max_tokens */
    CHECK(strstr(llm_cache_error_detail(), "min_tokens is 5: want 0 to max_tokens, which is 4") != NULL);
    BAD_SPEC(LLM_CACHE_E_RANGE, flags, 64);
    BAD_SPEC(LLM_CACHE_E_RANGE, flags, LLM_CACHE_ASK);
    BAD_SPEC(LLM_CACHE_E_RANGE, external, 1);
    CHECK(strstr(llm_cache_error_detail(), "no consumer") != NULL);
    BAD_SPEC(LLM_CACHE_E_RANGE, arrival, (double)0 / (double)zeros[0]);
    BAD_SPEC(LLM_CACHE_E_NULL, stop, (llm_cache_tokens){NULL, 1});
    BAD_SPEC(LLM_CACHE_E_RANGE, stop, (llm_cache_tokens){tokens, LLM_CACHE_MAX_STOP + 1});
    BAD_SPEC(LLM_CACHE_E_RANGE, stop, (llm_cache_tokens){tokens, -1});
    BAD_SPEC(LLM_CACHE_E_ALIGN, tokens.at, (const int32_t *)(const void *)(zeros + 1));
    tokens[39] = -1;
    BAD_SPEC(LLM_CACHE_E_RANGE, flags, 0);
    tokens[39] = 39;
    char *text = malloc(LLM_CACHE_MAX_TEXT + 2);
    CHECK(text != NULL);
    memset(text, 'x', LLM_CACHE_MAX_TEXT + 1);
    text[LLM_CACHE_MAX_TEXT + 1] = '\0';
    BAD_SPEC(LLM_CACHE_E_RANGE, salt, text);
    BAD_SPEC(LLM_CACHE_E_RANGE, lora, text);
    free(text);
    CHECK(id == 99);
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.waiting == 0 && stats.running == 0 && stats.free_blocks == 99 && stats.blocks == 99);
    OK(llm_cache_add(cache, &good, &id));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_fork(cache, id, -1, (double)0 / (double)zeros[0], &id));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_fork(cache, id, 5, 0, &id)); /* no token is generated yet */
    EXPECT(LLM_CACHE_E_NULL, llm_cache_fork(cache, id, -1, 0, NULL));
    OK(llm_cache_close(cache));
}

static void steps(void) {
    const llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_update(cache, NULL, 0, NULL, 0, &outcome));
    llm_request a = request(cache, 0, 40, 4), b = request(cache, 1000, 50, 4), child = 0;
    EXPECT(LLM_CACHE_E_NULL, llm_cache_schedule(cache, NULL));
#define BAD_STEP(code, field, ...)                      \
    do {                                                \
        llm_cache_step s = step;                        \
        s.field = __VA_ARGS__;                          \
        EXPECT(code, llm_cache_schedule(cache, &s));    \
    } while (0)
    BAD_STEP(LLM_CACHE_E_SIZE, size, 0);
    BAD_STEP(LLM_CACHE_E_SIZE, size, (uint32_t)sizeof step - 1);
    BAD_STEP(LLM_CACHE_E_SIZE, size, UINT32_MAX);
#define BAD_ARRAY(array)                                                             \
    do {                                                                             \
        BAD_STEP(LLM_CACHE_E_NULL, array.at, NULL);                                  \
        BAD_STEP(LLM_CACHE_E_RANGE, array.cap, -1);                                  \
        BAD_STEP(LLM_CACHE_E_RANGE, array.cap, INT64_MAX);                           \
        BAD_STEP(LLM_CACHE_E_RANGE, array.cap, INT64_MIN);                           \
        BAD_STEP(LLM_CACHE_E_ALIGN, array.at, (void *)(zeros + 1));                  \
        BAD_STEP(LLM_CACHE_E_OVERLAP, array.at, (void *)&s);                         \
        if ((void *)step.array.at != (void *)step.rows.at) {                         \
            BAD_STEP(LLM_CACHE_E_OVERLAP, array.at, (void *)(step.rows.at + ROOM - 1)); \
        }                                                                            \
    } while (0)
    BAD_ARRAY(rows);
    BAD_ARRAY(drafts);
    BAD_ARRAY(blocks);
    BAD_ARRAY(block_starts);
    BAD_ARRAY(block_ends);
    BAD_ARRAY(slots);
    BAD_ARRAY(copies);
    BAD_ARRAY(common);
    BAD_ARRAY(preempted);
    BAD_ARRAY(finished);
    int64_t computed, all;
    OK(llm_cache_progress(cache, a, &computed, &all));
    CHECK(computed == 0 && all == 40); /* none of these scheduled anything */

    /* Too small: each len is set, nothing is written, and the step is kept. */
    llm_cache_step small = step;
    small.blocks.cap = 6;
    small.rows.cap = 1;
    memset(step.rows.at, 0x55, sizeof *step.rows.at);
    memset(step.slots.at, 0x55, sizeof *step.slots.at);
    for (int twice = 0; twice < 2; twice++) {
        EXPECT(LLM_CACHE_E_SMALL, llm_cache_schedule(cache, &small));
        CHECK(small.rows.len == 2 && small.blocks.len == 7 && small.slots.len == 90 && small.common.len == 1);
        CHECK(step.rows.at[0].kind == 0x55555555 && step.slots.at[0] == 0x5555555555555555);
    }
    int32_t counts[] = {1, 1}, tokens[] = {7, 8};
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_update(cache, counts, 2, tokens, 2, &outcome)); /* not handed out */
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2 && step.tokens == 90 && step.rows.at[0].id == a && step.rows.at[1].id == b);
    CHECK(step.blocks.at[0] == 1 && step.block_ends.at[1] == 7 && step.slots.at[40] == 4 * 16);

    EXPECT(LLM_CACHE_E_ORDER, llm_cache_schedule(cache, &step)); /* not updated */
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_fork(cache, a, -1, 1, &child));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_update(cache, counts, 2, tokens, 2, NULL));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_update(cache, NULL, 2, tokens, 2, &outcome));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_update(cache, counts, 2, NULL, 2, &outcome));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, 1, tokens, 1, &outcome));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, 2, tokens, 1, &outcome));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, -2, tokens, 2, &outcome));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, 2, tokens, INT64_MAX, &outcome));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_update(cache, outcome.kept.at, 2, tokens, 2, &outcome));
    int32_t negative[] = {7, -8}, many[] = {2, 0};
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, 2, negative, 2, &outcome));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, many, 2, tokens, 2, &outcome));
    llm_cache_outcome narrow = outcome;
    narrow.done.cap = 1;
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_update(cache, counts, 2, tokens, 2, &narrow));
    CHECK(narrow.done.len == 2 && narrow.kept.len == 2);
    narrow = outcome;
    narrow.kept.cap = 1;
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_update(cache, counts, 2, tokens, 2, &narrow));
    narrow.reserved = 1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_update(cache, counts, 2, tokens, 2, &narrow));
    OK(llm_cache_progress(cache, a, &computed, &all));
    CHECK(computed == 40 && all == 40); /* none of these took a token */
    const int32_t shared[] = {1, 1, 8}; /* what is only read may overlap */
    OK(llm_cache_update(cache, shared, 2, shared + 1, 2, &outcome));
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_update(cache, counts, 2, tokens, 2, &outcome));

    int32_t few[2];
    llm_cache_i32s table = {.at = few, .cap = 2};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_table(cache, a, 0, &table));
    CHECK(table.len == 3);
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_table(cache, a, 1, &table));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_table(cache, a, INT32_MIN, &table));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_table(cache, a, 0, NULL));
    table.at = NULL;
    EXPECT(LLM_CACHE_E_NULL, llm_cache_table(cache, a, 0, &table));
    table.at = (int32_t *)(void *)&table;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_table(cache, a, 0, &table));

    EXPECT(LLM_CACHE_E_NULL, llm_cache_progress(cache, a, NULL, &all));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_progress(cache, a, &all, NULL));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_progress(cache, a, &all, &all));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_abort(cache, NULL, 1, &all));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_abort(cache, &a, 1, NULL));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_abort(cache, &a, -1, &all));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_abort(cache, &a, INT64_MAX, &all));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_abort(cache, &a, 1, (int64_t *)(void *)&a));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_set_drafts(cache, NULL, counts, 1, tokens, 0));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_set_drafts(cache, &a, NULL, 1, tokens, 0));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_set_drafts(cache, &a, counts, 1, tokens, 1)); /* no speculation */
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_set_drafts(cache, &a, counts, -1, tokens, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_statistics(cache, NULL));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_drain(cache, NULL));
    EXPECT(LLM_CACHE_E_BUSY, llm_cache_reset(cache, 0));
    OK(llm_cache_reset(cache, 1));
    OK(llm_cache_table(cache, a, 0, &(llm_cache_i32s){.at = few, .cap = 0}));
    OK(llm_cache_close(cache));
}

/* Nothing to ask of the machine: more caches and requests than may live. */
static void limits(void) {
    llm_cache_config config = config_small();
    static llm_cache all[LLM_CACHE_MAX_OPEN];
    config.num_gpu_blocks = 2;
    for (int i = 0; i < LLM_CACHE_MAX_OPEN; i++) {
        all[i] = opened(&config);
    }
    llm_cache one_more = 0;
    EXPECT(LLM_CACHE_E_LIMIT, llm_cache_open(&config, &one_more));
    OK(llm_cache_close(all[7]));
    OK(llm_cache_open(&config, &all[7]));
    for (int i = 0; i < LLM_CACHE_MAX_OPEN; i++) {
        OK(llm_cache_close(all[i]));
    }
    config.max_model_len = 8;
    llm_cache cache = opened(&config);
    int32_t token = 1;
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {&token, 1}, .max_tokens = 1};
    llm_request first = 0, id = 0;
    OK(llm_cache_add(cache, &spec, &first));
    for (int i = 1; i < LLM_CACHE_MAX_REQUESTS; i++) {
        OK(llm_cache_add(cache, &spec, &id));
    }
    EXPECT(LLM_CACHE_E_LIMIT, llm_cache_add(cache, &spec, &id));
    EXPECT(LLM_CACHE_E_LIMIT, llm_cache_fork(cache, first, -1, 1, &id));
    int64_t aborted;
    OK(llm_cache_abort(cache, &first, 1, &aborted));
    OK(llm_cache_add(cache, &spec, &id));
    OK(llm_cache_close(cache));
}

int main(int argc, char **argv) {
    step = step_new();
    outcome = outcome_new();
    if (argc > 1 && strcmp(argv[1], "limits") == 0) {
        limits();
    } else {
        texts();
        configs();
        handles();
        requests();
        steps();
    }
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

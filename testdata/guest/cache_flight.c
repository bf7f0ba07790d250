/*
 * cache_flight - several steps in flight, steps and rows that fail, requests that
 * are held, and what is hit afterwards.
 */
#include "cache_check.h"

static llm_cache_step step;
static llm_cache_outcome outcome;

/* How many tokens a request of n tokens from first on hits. */
static int32_t hit(llm_cache cache, int32_t first, int n) {
    llm_request id = request(cache, first, n, 1);
    OK(llm_cache_schedule(cache, &step));
    for (int64_t i = 0; i < step.rows.len; i++) {
        if (step.rows.at[i].id == id) {
            return step.rows.at[i].computed;
        }
    }
    CHECK(!"the request does not run");
    return -1;
}

static void one_token(llm_cache cache, int32_t token) {
    const int32_t count = 1;
    OK(llm_cache_update(cache, &count, 1, &token, 1, &outcome));
}

/* Decodes are scheduled before the token of the step before is known. */
static void async(void) {
    llm_cache_config config = config_small();
    config.flags = LLM_CACHE_ASYNC;
    llm_cache cache = opened(&config);
    int32_t tokens[20] = {1};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 3, .user_data = 77};
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].samples == 1 && step.rows.at[0].tokens == 20 && step.rows.at[0].user_data == 77);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].computed == 20 && step.rows.at[0].tokens == 1 && step.slots.at[0] == 2 * 16 + 4);
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_schedule(cache, &step));
    llm_request child = 0;
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_fork(cache, id, -1, 1, &child));
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.in_flight == 2 && stats.admitted == 1 && stats.queue_ns > 0);
    one_token(cache, 5);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].computed == 21);
    one_token(cache, 6);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 0); /* the last token is in flight */
    one_token(cache, 7);
    CHECK(outcome.done.len == 1 && outcome.done.at[0].id == id && outcome.done.at[0].user_data == 77);
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.in_flight == 0 && stats.sampled == 3 && stats.preemptions == 0);
    OK(llm_cache_close(cache));
}

/* A step that is too large for its arrays is kept, and the one before is updated meanwhile. */
static void kept(void) {
    llm_cache_config config = config_small();
    config.max_concurrent_batches = 2;
    llm_cache cache = opened(&config);
    request(cache, 0, 20, 3);
    OK(llm_cache_schedule(cache, &step));
    request(cache, 100, 30, 3);
    llm_cache_step none = {.size = sizeof none};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_schedule(cache, &none));
    one_token(cache, 5);
    const int32_t count = 1, token = 6;
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_update(cache, &count, 1, &token, 1, &outcome));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].tokens == 30);
    one_token(cache, 6);
    OK(llm_cache_close(cache));
}

/* Equal placeholders of different images are different blocks. */
static void items(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    int32_t tokens[50] = {0};
    const struct {
        const char *hash;
        int32_t offset, hit;
    } cases[] = {{"cat", 20, 0}, {"cat", 20, 48}, {"dog", 20, 16}, {"cat", 21, 16}, {NULL, 0, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm_cache_item item = {.hash = cases[i].hash, .offset = cases[i].offset, .length = 10};
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 50}, .max_tokens = 1, .items = &item, .items_len = cases[i].hash != NULL};
        llm_request id = 0;
        OK(llm_cache_add(cache, &spec, &id));
        OK(llm_cache_schedule(cache, &step));
        CHECK(step.rows.len == 1 && step.rows.at[0].computed == cases[i].hit);
        one_token(cache, 1);
    }
    llm_cache_item bad[] = {{"a", 0, 0}, {"a", 45, 6}, {"", 1, 1}, {NULL, 1, 1}, {"a", -1, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 50}, .max_tokens = 1, .items = &bad[i], .items_len = 1};
        llm_request id = 0;
        CHECK(llm_cache_add(cache, &spec, &id) != LLM_CACHE_OK);
    }
    OK(llm_cache_close(cache));
}

/* Nothing that a failed step should have written is hit. */
static void failed(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_step_failed(cache));
    llm_request a = request(cache, 0, 40, 4), b = request(cache, 0, 40, 4);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2 && step.rows.at[1].computed == 32); /* b hits what a computes */
    OK(llm_cache_step_failed(cache));
    int64_t computed, all, aborted;
    OK(llm_cache_progress(cache, a, &computed, &all));
    CHECK(computed == 0 && all == 40);
    OK(llm_cache_abort(cache, &a, 1, &aborted));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].id == b && step.rows.at[0].computed == 0);
    sample(cache, &step, &outcome);
    /* A decode that fails is as it was. */
    for (int i = 0; i < 3; i++) {
        OK(llm_cache_schedule(cache, &step));
        CHECK(step.rows.len == 1 && step.rows.at[0].computed == 40 && step.rows.at[0].tokens == 1);
        CHECK(i == 0 || (step.rows.at[0].kind == LLM_CACHE_ROW_RESUMED && step.block_starts.at[0] == 0 && step.blocks.len == 3));
        OK(llm_cache_step_failed(cache));
    }
    /* A step that is kept fails as well. */
    llm_cache_step none = {.size = sizeof none};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_schedule(cache, &none));
    OK(llm_cache_step_failed(cache));
    OK(llm_cache_schedule(cache, &step));
    sample(cache, &step, &outcome);
    OK(llm_cache_close(cache));
}

/* 0 tokens in a row that samples: it comes again. */
static void nothing_sampled(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    llm_request id = request(cache, 0, 40, 2);
    for (int i = 0; i < 3; i++) {
        OK(llm_cache_schedule(cache, &step));
        CHECK(step.rows.len == 1 && step.rows.at[0].tokens == 40);
        const int32_t count = 0;
        OK(llm_cache_update(cache, &count, 1, NULL, 0, &outcome));
    }
    OK(llm_cache_schedule(cache, &step));
    one_token(cache, 5);
    OK(llm_cache_schedule(cache, &step));
    one_token(cache, 5);
    CHECK(outcome.done.len == 1 && outcome.done.at[0].id == id);
    OK(llm_cache_close(cache));
}

/* The blocks of a row that was aborted in flight, and may not have been computed. */
static void aborted_in_flight(void) {
    for (int as_vllm = 0; as_vllm < 2; as_vllm++) {
        llm_cache_config config = config_small();
        config.flags = as_vllm ? LLM_CACHE_AS_VLLM : 0;
        llm_cache cache = opened(&config);
        llm_request id = request(cache, 0, 40, 2);
        OK(llm_cache_schedule(cache, &step));
        int64_t aborted;
        OK(llm_cache_abort(cache, &id, 1, &aborted));
        const int32_t count = 0;
        OK(llm_cache_update(cache, &count, 1, NULL, 0, &outcome));
        CHECK(hit(cache, 0, 40) == (as_vllm ? 32 : 0));
        OK(llm_cache_close(cache));
    }
}

static void held(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    int32_t tokens[20] = {1};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 1, .flags = LLM_CACHE_HOLD};
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    llm_request other = request(cache, 50, 20, 1);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].id == other);
    sample(cache, &step, &outcome);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 0);
    OK(llm_cache_release(cache, &id, 1));
    OK(llm_cache_release(cache, &other, 1)); /* has finished: skipped */
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].id == id);
    OK(llm_cache_close(cache));
}

static int logged;

static void note(void *user, int error, const char *detail) {
    CHECK(user == &logged && error == LLM_CACHE_E_HANDLE && strstr(detail, "handle") != NULL);
    logged++;
}

static void logging(void) {
    llm_cache_set_log(note, &logged);
    EXPECT(LLM_CACHE_E_HANDLE, llm_cache_close(12345));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cache_step_failed(0));
    llm_cache_set_log(NULL, NULL);
    EXPECT(LLM_CACHE_E_HANDLE, llm_cache_close(12345));
    CHECK(logged == 2);
}

int main(void) {
    CHECK(LLM_CACHE_VERSION == 3);
    step = step_new();
    outcome = outcome_new();
    async();
    items();
    kept();
    failed();
    nothing_sampled();
    aborted_in_flight();
    held();
    logging();
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

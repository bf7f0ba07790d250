/*
 * cache_items - multimodal items: when an encoder runs and which outputs it keeps;
 * how many adapters run; how long blocks stay; pauses.
 */
#include <stddef.h>

#include "cache_check.h"

static llm_cache_step step;
static llm_cache_outcome outcome;

static llm_cache cache_with_encoder(int32_t size, int32_t budget) {
    llm_cache_config config = config_small();
    config.encoder_cache_size = size;
    config.max_num_encoder_input_tokens = budget;
    return opened(&config);
}

/* A request of 50 tokens with one item. */
static int add_item(llm_cache cache, const char *hash, int32_t offset, int32_t length, const uint8_t *is_embed, llm_request *id) {
    int32_t tokens[50];
    for (int i = 0; i < 50; i++) {
        tokens[i] = hash[0]; /* different prompts: nothing is hit */
    }
    llm_cache_item item = {.hash = hash, .offset = offset, .length = length};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 50}, .max_tokens = 4, .items = &item, .items_len = 1, .user_data = 7, .is_embed = is_embed};
    return llm_cache_add(cache, &spec, id);
}

static int freed(const char *hash) {
    const llm_cache_bytes *f = &step.freed_encoder_outputs;
    return f->len == (int64_t)strlen(hash) + 1 && memcmp(f->at, hash, (size_t)f->len) == 0;
}

/* An item is encoded once; its output is evicted when its memory is needed. */
static void outputs(void) {
    llm_cache cache = cache_with_encoder(60, 60);
    llm_request cat, dog, same;
    OK(add_item(cache, "cat", 5, 40, NULL, &cat));
    OK(add_item(cache, "dog", 20, 30, NULL, &dog));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2 && step.rows.at[0].tokens == 50 && step.rows.at[1].tokens == 20); /* up to the dog */
    CHECK(step.encoder_inputs.len == 1 && step.freed_encoder_outputs.len == 0);
    llm_cache_encoder_input in = step.encoder_inputs.at[0];
    CHECK(in.id == cat && in.user_data == 7 && in.row == 0 && in.item == 0);
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.encoder_taken == 40 && stats.encoder_referenced == 40);
    sample(cache, &step, &outcome);
    OK(add_item(cache, "cat", 5, 40, NULL, &same));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.encoder_inputs.len == 1 && step.encoder_inputs.at[0].id == dog && step.encoder_inputs.at[0].row == 1);
    CHECK(freed("cat"));
    OK(llm_cache_close(cache));
}

/* An item that could never be encoded is refused; one with few embeddings among much text is not. */
static void refused(void) {
    llm_cache cache = cache_with_encoder(20, 10);
    llm_request id;
    EXPECT(LLM_CACHE_E_RANGE, add_item(cache, "cat", 0, 11, NULL, &id));
    CHECK(strstr(llm_cache_error_detail(), "11 embeddings") != NULL);
    uint8_t is_embed[50] = {0};
    is_embed[3] = is_embed[7] = 1;
    OK(add_item(cache, "cat", 0, 11, is_embed, &id));
    OK(llm_cache_schedule(cache, &step));
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(step.encoder_inputs.len == 1 && stats.encoder_taken == 2);
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_reset_encoder(cache));
    sample(cache, &step, &outcome);
    OK(llm_cache_reset_encoder(cache));
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.encoder_taken == 0);
    OK(llm_cache_close(cache));
}

/* A struct of an older header has no fields for what an encoder needs. */
static void older(void) {
    llm_cache cache = cache_with_encoder(60, 0);
    llm_request id;
    OK(add_item(cache, "cat", 5, 40, NULL, &id));
    step.size = offsetof(llm_cache_step, encoder_inputs);
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_schedule(cache, &step));
    step.size = sizeof step;
    /* The step is kept, also while its arrays are too small. */
    llm_cache_encoder_inputs full = step.encoder_inputs;
    step.encoder_inputs.cap = 0;
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_schedule(cache, &step));
    CHECK(step.encoder_inputs.len == 1);
    step.encoder_inputs = full;
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.encoder_inputs.len == 1 && step.encoder_inputs.at[0].id == id);
    sample(cache, &step, &outcome);
    OK(llm_cache_close(cache));
}

static void adapters(void) {
    llm_cache_config config = config_small();
    config.max_loras = 1;
    llm_cache cache = opened(&config);
    const int32_t tokens[4] = {1, 2, 3, 4};
    const int64_t ids[] = {1, 2, 1, 0};
    llm_request requests[4];
    for (int i = 0; i < 4; i++) {
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 4}, .max_tokens = 2, .lora_id = ids[i]};
        OK(llm_cache_add(cache, &spec, &requests[i]));
    }
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 3 && step.rows.at[0].id == requests[0] && step.rows.at[1].id == requests[2] && step.rows.at[2].id == requests[3]);
    OK(llm_cache_close(cache));
    config.max_loras = -1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_open(&config, &cache));
}

static void paused(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    llm_request running = request(cache, 0, 20, 5);
    OK(llm_cache_schedule(cache, &step));
    sample(cache, &step, &outcome);
    request(cache, 100, 20, 5);
    OK(llm_cache_pause(cache, LLM_CACHE_PAUSE_NEW));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].id == running);
    sample(cache, &step, &outcome);
    OK(llm_cache_pause(cache, LLM_CACHE_PAUSE_ALL));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 0);
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_pause(cache, 3));
    OK(llm_cache_pause(cache, LLM_CACHE_PAUSE_NONE));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2);
    OK(llm_cache_close(cache));
}

int main(void) {
    step = step_new();
    outcome = outcome_new();
    outputs();
    refused();
    older();
    adapters();
    paused();
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

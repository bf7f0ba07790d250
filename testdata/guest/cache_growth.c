/*
 * cache_growth - structs of an older and of a newer header than the library's,
 * and the layouts that programs were compiled with.
 */
#include <stddef.h>

#include "cache_check.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
_Static_assert(sizeof(llm_cache) == 8 && sizeof(llm_request) == 8, "handles");
_Static_assert(sizeof(llm_cache_group) == 32, "group");
_Static_assert(sizeof(llm_cache_config) == 112, "config");
AT(llm_cache_config, max_model_len, 20);
AT(llm_cache_config, policy, 24);
AT(llm_cache_config, hash_seed, 32);
AT(llm_cache_config, flags, 40);
AT(llm_cache_config, watermark, 56);
AT(llm_cache_config, groups, 64);
AT(llm_cache_config, retention_interval, 80);
AT(llm_cache_config, pipeline_parallel_size, 88);
AT(llm_cache_config, max_loras, 100);
AT(llm_cache_config, max_num_encoder_input_tokens, 108);
_Static_assert(sizeof(llm_cache_spec) == 120, "spec");
AT(llm_cache_spec, tokens, 8);
AT(llm_cache_spec, max_tokens, 24);
AT(llm_cache_spec, stop, 32);
AT(llm_cache_spec, salt, 48);
AT(llm_cache_spec, arrival, 72);
AT(llm_cache_spec, priority, 80);
AT(llm_cache_spec, external, 84);
AT(llm_cache_spec, user_data, 88);
AT(llm_cache_spec, items, 96);
_Static_assert(sizeof(llm_cache_row) == 40 && sizeof(llm_cache_copy) == 24 && sizeof(llm_cache_done) == 24, "entries");
AT(llm_cache_copy, id, 16);
_Static_assert(sizeof(llm_cache_i32s) == 24 && sizeof(llm_cache_i64s) == 24 && sizeof(llm_cache_ids) == 24, "arrays");
_Static_assert(sizeof(llm_cache_step) == 8 + 16 * 24 && sizeof(llm_cache_tail) == 32, "step");
AT(llm_cache_step, rows, 8);
AT(llm_cache_step, slots, 8 + 5 * 24);
AT(llm_cache_step, finished, 8 + 9 * 24);
AT(llm_cache_step, loads, 8 + 10 * 24);
AT(llm_cache_step, encoder_inputs, 8 + 12 * 24);
AT(llm_cache_step, zero, 8 + 14 * 24);
_Static_assert(sizeof(llm_cache_layer) == 48 && sizeof(llm_cache_worker) == 24 && sizeof(llm_cache_plan) == 168, "plan");
AT(llm_cache_plan, max_model_len, 104);
AT(llm_cache_plan, block_stride, 128);
_Static_assert(sizeof(llm_cache_load) == 24 && sizeof(llm_cache_query) == 24 && sizeof(llm_cache_encoder_input) == 24 && sizeof(llm_cache_item) == 16, "transfers");
_Static_assert(sizeof(llm_cache_outcome) == 8 + 2 * 24, "outcome");
_Static_assert(sizeof(llm_cache_load_failure) == 8 + 2 * 24 && sizeof(llm_cache_void_row) == 8, "failed loads");
_Static_assert(sizeof(llm_cache_stats) == 232, "stats");
AT(llm_cache_stats, running, 8);
AT(llm_cache_stats, resumed_hits, 80);
_Static_assert(sizeof(llm_cache_hash) == 32 && sizeof(llm_cache_event) == 72, "events");
AT(llm_cache_event, parent, 16);
AT(llm_cache_event, tokens_end, 64);
_Static_assert(sizeof(llm_cache_events) == 8 + 3 * 24, "event arrays");

/* The header before it had a policy, and one after it has learnt something new. */
struct old_config {
    uint32_t size;
    int32_t num_gpu_blocks, block_size, max_num_seqs, max_num_batched_tokens, max_model_len;
};
struct new_config {
    llm_cache_config now;
    int64_t novelty;
};

/* The rest of a page is not to be looked at. */
static void old_ones(void) {
    struct {
        struct old_config config;
        unsigned char behind[256];
    } c = {.config = {sizeof c.config, 100, 16, 8, 512, 512}};
    memset(c.behind, 0xff, sizeof c.behind);
    llm_cache cache = 0;
    OK(llm_cache_open((const llm_cache_config *)(const void *)&c.config, &cache));
    c.config.size--;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_open((const llm_cache_config *)(const void *)&c.config, &cache));
    c.config.size = 0;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_open((const llm_cache_config *)(const void *)&c.config, &cache));

    int32_t tokens[20] = {1};
    llm_cache_spec spec;
    memset(&spec, 0xff, sizeof spec);
    spec.size = offsetof(llm_cache_spec, stop);
    spec.flags = 0;
    spec.tokens = (llm_cache_tokens){tokens, 20};
    spec.max_tokens = 2;
    spec.min_tokens = 0;
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    spec.size--;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_add(cache, &spec, &id));
    const size_t inside[] = {offsetof(llm_cache_spec, stop) + 4, offsetof(llm_cache_spec, salt) - 8,
                             offsetof(llm_cache_spec, salt) + 4, offsetof(llm_cache_spec, lora) + 1};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        spec.size = (uint32_t)inside[i]; /* half a pointer would be read */
        EXPECT(LLM_CACHE_E_SIZE, llm_cache_add(cache, &spec, &id));
    }

    llm_cache_step step = step_new();
    step.size = offsetof(llm_cache_step, loads); /* of a host without a connector */
    free(step.loads.at), step.loads = (llm_cache_loads){NULL, -1, 7};
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.loads.len == 7);
    OK(llm_cache_step_failed(cache));
    step.size -= 8;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_schedule(cache, &step));
    step.loads = (llm_cache_loads){NULL, 0, 0};
    step_free(&step);

    llm_cache_stats stats;
    memset(&stats, 0x55, sizeof stats);
    stats.size = offsetof(llm_cache_stats, free_blocks);
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.size == offsetof(llm_cache_stats, free_blocks) && stats.waiting == 1 && stats.reset == 0);
    CHECK(stats.free_blocks == 0x5555555555555555 && stats.resumed_hits == 0x5555555555555555);
    stats.size = offsetof(llm_cache_stats, free_blocks) + 4;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_statistics(cache, &stats));
    CHECK(strstr(llm_cache_error_detail(), "ends inside its field free_blocks") != NULL);
    stats.size = 4;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_statistics(cache, &stats));
    OK(llm_cache_close(cache));
}

static void new_ones(void) {
    struct new_config c = {.now = config_small(), .novelty = 0};
    c.now.size = sizeof c;
    llm_cache cache = 0, none = 0;
    OK(llm_cache_open(&c.now, &cache));
    c.novelty = 1;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_open(&c.now, &none));
    c.now.size = UINT32_MAX;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_open(&c.now, &none));
    CHECK(none == 0);
    struct {
        llm_cache_stats now;
        int64_t novelty;
    } stats = {.now = {.size = sizeof stats}, .novelty = 5};
    OK(llm_cache_statistics(cache, &stats.now));
    CHECK(stats.now.size == sizeof stats && stats.now.blocks == 99 && stats.novelty == 0);
    struct {
        llm_cache_step now;
        llm_cache_i32s novelty;
    } step = {.now = step_new(), .novelty = {0}};
    step.now.size = sizeof step;
    OK(llm_cache_schedule(cache, &step.now));
    step.novelty.cap = 1;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_schedule(cache, &step.now));
    step_free(&step.now);
    OK(llm_cache_close(cache));
}

int main(void) {
    old_ones();
    new_ones();
    return 0;
}

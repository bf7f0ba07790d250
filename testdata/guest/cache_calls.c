/*
 * cache_calls - what the calls mean beyond the example: salts and adapters keep
 * requests apart, priorities, stops, drafts, groups of layers, aborts inside a
 * step, events, resets.
 */
#include <stddef.h>

#include "cache_check.h"

static llm_cache_step step;
static llm_cache_outcome outcome;

static llm_request named(llm_cache cache, const char *salt, const char *lora, int32_t priority) {
    int32_t tokens[64];
    for (int i = 0; i < 64; i++) {
        tokens[i] = i;
    }
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 64}, .max_tokens = 3,
                           .salt = salt, .lora = lora, .lora_id = 9, .priority = priority};
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    memset(tokens, 0, sizeof tokens); /* they are the caller's */
    return id;
}

/* Only equal salts and adapters share. */
static void extras(void) {
    const struct {
        const char *salt, *lora;
        int32_t computed; /* hit by its first step */
    } all[] = {{NULL, NULL, 0}, {"", "", 48}, {"s", NULL, 0}, {"s", "", 48}, {NULL, "a", 0}, {"s", "a", 0}, {"s", "a", 48}};
    const llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        llm_request id = named(cache, all[i].salt, all[i].lora, 0);
        OK(llm_cache_schedule(cache, &step));
        CHECK(step.rows.len == 1 && step.rows.at[0].id == id && step.rows.at[0].computed == all[i].computed);
        sample(cache, &step, &outcome);
        int64_t aborted = 0;
        OK(llm_cache_abort(cache, &id, 1, &aborted));
    }
    OK(llm_cache_close(cache));
}

static void priorities(void) {
    llm_cache_config config = config_small();
    config.policy = LLM_CACHE_PRIORITY;
    config.max_num_seqs = 1;
    llm_cache cache = opened(&config);
    llm_request low = named(cache, NULL, NULL, 5), high = named(cache, NULL, NULL, -5);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 1 && step.rows.at[0].id == high && high != low);
    OK(llm_cache_close(cache));
}

static void stops(void) {
    const llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    int32_t tokens[20] = {1}, stop[] = {4, 5};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 9, .min_tokens = 1, .stop = {stop, 2}};
    llm_request id = 0;
    OK(llm_cache_add(cache, &spec, &id));
    OK(llm_cache_schedule(cache, &step));
    sample(cache, &step, &outcome);
    CHECK(outcome.done.len == 1 && outcome.done.at[0].id == id && outcome.done.at[0].reason == LLM_CACHE_STOPPED);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 0 && step.finished.len == 1 && step.finished.at[0] == id);
    OK(llm_cache_schedule(cache, &step)); /* a step without rows needs no update */
    CHECK(step.finished.len == 0);
    OK(llm_cache_close(cache));
}

static void drafts(void) {
    llm_cache_config config = config_small();
    config.num_speculative_tokens = 3;
    llm_cache cache = opened(&config);
    llm_request id = request(cache, 0, 20, 9);
    OK(llm_cache_schedule(cache, &step));
    sample(cache, &step, &outcome);
    const int32_t three = 3, four = 4, proposed[] = {11, 12, 13, 14};
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_set_drafts(cache, &id, &four, 1, proposed, 4));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_set_drafts(cache, &id, &three, 1, proposed, 2));
    OK(llm_cache_set_drafts(cache, &id, &three, 1, proposed, 3));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.at[0].drafts == 3 && step.rows.at[0].tokens == 4 && step.drafts.len == 3 && step.drafts.at[2] == 13);
    const int32_t two = 2, sampled[] = {11, 99}; /* one was right */
    OK(llm_cache_update(cache, &two, 1, sampled, 2, &outcome));
    CHECK(outcome.kept.at[0] == 2);
    int64_t computed, all;
    OK(llm_cache_progress(cache, id, &computed, &all));
    CHECK(computed == 22 && all == 23);
    OK(llm_cache_close(cache));
}

/* Two groups with different blocks: parts of `blocks` and `slots`. */
static void groups(void) {
    const llm_cache_group layers[] = {
        {.kind = LLM_CACHE_FULL, .block_size = 16},
        {.kind = LLM_CACHE_SLIDING_WINDOW, .block_size = 8, .window = 16},
    };
    llm_cache_config config = config_small();
    config.block_size = 0;
    config.groups = layers;
    config.groups_len = 2;
    llm_cache cache = opened(&config);
    request(cache, 0, 40, 3);
    request(cache, 500, 24, 3);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2 && step.tokens == 64 && step.slots.len == 128 && step.common.len == 2);
    CHECK(step.block_ends.len == 4 && step.block_starts.len == 4 && step.block_ends.at[3] == step.blocks.len);
    for (int g = 0; g < 2; g++) {
        int64_t slot = 0;
        for (int row = 0; row < 2; row++) {
            int part = row * 2 + g;
            int64_t first = part == 0 ? 0 : step.block_ends.at[part - 1];
            for (int p = 0; p < step.rows.at[row].tokens; p++, slot++) {
                int32_t block = step.blocks.at[first + p / layers[g].block_size];
                int64_t want = block == 0 ? -1 : (int64_t)block * layers[g].block_size + p % layers[g].block_size;
                CHECK(step.slots.at[g * step.tokens + slot] == want);
            }
        }
    }
    OK(llm_cache_close(cache));
}

/* An abort between schedule and update, and while a step is kept. */
static void aborts(void) {
    const llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    llm_request a = request(cache, 0, 40, 3), b = request(cache, 100, 40, 3);
    llm_cache_step none = {.size = sizeof none};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_schedule(cache, &none));
    int64_t aborted = 0;
    OK(llm_cache_abort(cache, &a, 1, &aborted));
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 2 && step.rows.at[0].id == a && step.finished.len == 0);
    OK(llm_cache_abort(cache, &b, 1, &aborted));
    const int32_t counts[] = {1, 1}, tokens[] = {1, 2};
    OK(llm_cache_update(cache, counts, 2, tokens, 2, &outcome));
    CHECK(outcome.kept.at[0] == 0 && outcome.kept.at[1] == 0 && outcome.done.len == 0);
    OK(llm_cache_schedule(cache, &step));
    CHECK(step.rows.len == 0 && step.finished.len == 2 && step.finished.at[0] == a && step.finished.at[1] == b);
    OK(llm_cache_close(cache));
}

/* A batch with the event of a reset, as bytes. */
static void wire(llm_cache cache) {
    static const uint8_t want[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x91\x81\xa4type\xb0" "AllBlocksCleared\x02";
    const int64_t size = sizeof want - 1;
    uint8_t bytes[64] = {0};
    llm_cache_bytes batch = {.at = bytes, .cap = sizeof bytes};
    OK(llm_cache_drain_msgpack(cache, 1.5, 2, 0, &batch));
    CHECK(batch.len == 0);
    OK(llm_cache_reset(cache, 0));
    batch.cap = 3;
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_drain_msgpack(cache, 1.5, 2, 0, &batch));
    CHECK(batch.len == size && bytes[0] == 0);
    EXPECT(LLM_CACHE_E_NULL, llm_cache_drain_msgpack(cache, 1.5, 2, 0, NULL));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_drain_msgpack(cache, 1.5, 2, 4, &batch));
    batch.cap = sizeof bytes;
    OK(llm_cache_drain_msgpack(cache, 1.5, 2, LLM_CACHE_INT_HASHES, &batch));
    CHECK(batch.len == size && memcmp(bytes, want, (size_t)size) == 0);
}

static void events(void) {
    llm_cache_config config = config_small();
    config.flags = LLM_CACHE_EVENTS;
    config.hash_seed = "0";
    llm_cache cache = opened(&config);
    llm_request id = named(cache, NULL, "adapter", 0);
    OK(llm_cache_schedule(cache, &step));
    sample(cache, &step, &outcome);
    llm_cache_events drained = {.size = sizeof drained};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_drain(cache, &drained));
    CHECK(drained.events.len == 1 && drained.hashes.len == 4 && drained.tokens.len == 64);
    int64_t aborted = 0;
    OK(llm_cache_abort(cache, &id, 1, &aborted));
    OK(llm_cache_reset(cache, 0)); /* comes after those that are kept */
    GIVE(drained.events), GIVE(drained.hashes), GIVE(drained.tokens);
    OK(llm_cache_drain(cache, &drained));
    const llm_cache_event *e = drained.events.at;
    CHECK(drained.events.len == 1 && e->kind == LLM_CACHE_STORED && e->block_size == 16 && e->lora_id == 9);
    CHECK(e->has_parent == 0 && e->hashes_end == 4 && e->tokens_end == 64 && drained.tokens.at[63] == 63);
    CHECK(memcmp(&drained.hashes.at[0], &drained.hashes.at[1], sizeof(llm_cache_hash)) != 0);
    OK(llm_cache_drain(cache, &drained));
    CHECK(drained.events.len == 1 && e->kind == LLM_CACHE_CLEARED && drained.hashes.len == 0);
    OK(llm_cache_drain(cache, &drained));
    CHECK(drained.events.len == 0);
    wire(cache);
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.reset == 1 && stats.requests == 1 && stats.queries == 64 && stats.hits == 0);
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.reset == 0 && stats.requests == 0);
    llm_cache_hash *hashes = drained.hashes.at;
    drained.hashes.at = (llm_cache_hash *)(void *)drained.tokens.at;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_drain(cache, &drained));
    free(drained.events.at), free(drained.tokens.at), free(hashes);
    OK(llm_cache_close(cache));
}

/* Two stages of a pipeline: groups are those of the whole model, and both have as many blocks as the smaller one. */
static void planned_for_workers(void) {
    const llm_cache_layer full = {.kind = LLM_CACHE_FULL, .block_size = 16, .kv_heads = 2, .head_size = 64, .element_bytes = 4};
    llm_cache_layer window = full;
    window.kind = LLM_CACHE_SLIDING_WINDOW, window.window = 32;
    const llm_cache_layer layers[] = {full, window, window, window};
    const int64_t page = 16 * 2 * 64 * 4 * 2;
    const int32_t stages[2][2] = {{0, 1}, {2, 3}}, back[2] = {1, 0};
    llm_cache_worker workers[] = {{page * 40, stages[0], 2}, {page * 30, stages[1], 2}};
    llm_cache_plan first = {.size = sizeof first}, second = {.size = sizeof second};
    llm_cache_plan *plans[] = {&first, &second};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    CHECK(second.groups.len == 4 && second.layer_groups.len == 4 && second.tensor_bytes.len == 1);
    for (int i = 0; i < 2; i++) {
        GIVE(plans[i]->groups), GIVE(plans[i]->layer_groups), GIVE(plans[i]->layer_tensors), GIVE(plans[i]->tensor_bytes);
        plans[i]->max_model_len = 64;
    }
    OK(llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    const int32_t groups[2][4] = {{0, 1, -1, -1}, {-1, -1, 2, 3}}, tensors[2][4] = {{0, 0, -1, -1}, {-1, -1, 0, 0}};
    for (int i = 0; i < 2; i++) {
        CHECK(plans[i]->num_gpu_blocks == 30 && plans[i]->tensor_bytes.at[0] == page * 30 && plans[i]->longest == 64);
        CHECK(memcmp(plans[i]->layer_groups.at, groups[i], sizeof groups[i]) == 0);
        CHECK(memcmp(plans[i]->layer_tensors.at, tensors[i], sizeof tensors[i]) == 0);
    }
    plans[1] = &first;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    plans[1] = NULL;
    EXPECT(LLM_CACHE_E_NULL, llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    plans[1] = &second;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_workers(layers, 4, workers, 0, 0, plans));
    workers[1].layers = back;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    workers[1].bytes = -1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_workers(layers, 4, workers, 2, 0, plans));
    for (int i = 0; i < 2; i++) {
        TAKE(plans[i]->groups), TAKE(plans[i]->layer_groups), TAKE(plans[i]->layer_tensors), TAKE(plans[i]->tensor_bytes);
    }
}

/* A model with windows: the plan of its memory opens a cache. */
static void planned(void) {
    llm_cache_layer layers[6];
    for (int i = 0; i < 6; i++) {
        layers[i] = (llm_cache_layer){.kind = i < 2 ? LLM_CACHE_FULL : LLM_CACHE_SLIDING_WINDOW, .block_size = 16,
                                      .window = i < 2 ? 0 : 32, .kv_heads = 2, .head_size = 64, .element_bytes = 2};
    }
    const int64_t page = 2 * 16 * 2 * 64 * 2;
    llm_cache_plan plan = {.size = sizeof plan};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_plan_memory(layers, 6, page * 2 * 50, 0, &plan));
    CHECK(plan.groups.len == 3 && plan.layer_groups.len == 6 && plan.layer_tensors.len == 6 && plan.tensor_bytes.len == 2);
    GIVE(plan.groups), GIVE(plan.layer_groups), GIVE(plan.layer_tensors), GIVE(plan.tensor_bytes);
    OK(llm_cache_plan_memory(layers, 6, page * 2 * 50, 0, &plan));
    const int32_t groups[] = {0, 0, 1, 2, 1, 2}, tensors[] = {0, 1, 0, 0, 1, 1};
    CHECK(plan.num_gpu_blocks == 50 && memcmp(plan.layer_groups.at, groups, sizeof groups) == 0);
    CHECK(memcmp(plan.layer_tensors.at, tensors, sizeof tensors) == 0 && plan.tensor_bytes.at[1] == page * 50);
    CHECK(plan.groups.at[2].kind == LLM_CACHE_SLIDING_WINDOW && plan.groups.at[2].window == 32 && plan.groups.at[2].block_size == 16);
    llm_cache_config config = config_small();
    config.block_size = 0;
    config.num_gpu_blocks = plan.num_gpu_blocks;
    config.groups = plan.groups.at;
    config.groups_len = plan.groups.len;
    OK(llm_cache_close(opened(&config)));
    plan.max_model_len = 576, plan.max_in_flight_tokens = 64;
    OK(llm_cache_plan_memory(layers, 6, page * 2 * 51, 0, &plan)); /* the null block, and 50 for the request */
    CHECK(plan.longest == 576 && plan.request_bytes == page * 2 * 50);
    plan.max_model_len = 1000;
    EXPECT(LLM_CACHE_E_MEMORY, llm_cache_plan_memory(layers, 6, page * 2 * 51, 0, &plan));
    CHECK(plan.longest == 576 && plan.request_bytes == page * 2 * 77);
    CHECK(strstr(llm_cache_error_detail(), "one request of 1000 tokens") && strstr(llm_cache_error_detail(), "the longest that fits is 576"));
    plan.size = offsetof(llm_cache_plan, max_model_len); /* of an older header */
    OK(llm_cache_plan_memory(layers, 6, 0, 7, &plan));
    CHECK(plan.num_gpu_blocks == 7 && plan.longest == 576);
    plan.size = sizeof plan, plan.max_model_len = 0;
    EXPECT(LLM_CACHE_E_NULL, llm_cache_plan_memory(NULL, 6, page, 0, &plan));
    EXPECT(LLM_CACHE_E_NULL, llm_cache_plan_memory(layers, 6, page, 0, NULL));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, page, 0, &plan)); /* for no block */
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, -1, 0, &plan));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, page, -1, &plan));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, INT64_MAX, 0, &plan)); /* more blocks than may be */
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 0, page, 0, &plan));
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, LLM_CACHE_MAX_LAYERS + 1, page, 0, &plan));
    layers[5].kv_heads = 3;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, page * 500, 0, &plan)); /* blocks that do not divide */
    layers[5].kv_heads = INT32_MAX;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 6, page * 500, 0, &plan));
    TAKE(plan.groups), TAKE(plan.layer_groups), TAKE(plan.layer_tensors), TAKE(plan.tensor_bytes);
}

/*
 * Packed plans, with the values of vLLM's test_contiguous_kv_packing.py: layers of keys only, whose windows keep
 * states of other sizes; then blocks across layers; then plans that are not packed.
 */
static void planned_packed(void) {
    const llm_cache_layer keys = {.kind = LLM_CACHE_FULL, .block_size = 256, .flags = LLM_CACHE_LAYER_KEYS_ONLY | LLM_CACHE_LAYER_PAGE};
    llm_cache_layer layers[8];
    const int64_t pages[] = {32768, 4608, 32768, 4608, 32768, 8192, 32768, 8192}, stride = 2 * (32768 + 8192);
    for (int i = 0; i < 8; i++) {
        layers[i] = keys, layers[i].state_bytes = pages[i];
        if (i >= 4) {
            layers[i].kind = LLM_CACHE_SLIDING_WINDOW, layers[i].block_size = 4, layers[i].window = 8;
        }
    }
    llm_cache_plan plan = {.size = sizeof plan};
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan));
    CHECK(plan.groups.len == 2 && plan.tensor_bytes.len == 1 && plan.layer_offsets.len == 8);
    GIVE(plan.groups), GIVE(plan.layer_groups), GIVE(plan.layer_tensors), GIVE(plan.tensor_bytes), GIVE(plan.layer_offsets);
    OK(llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan));
    const int64_t offsets[] = {0, 32768, 37376, 70144, 0, 32768, 40960, 73728};
    CHECK(plan.num_gpu_blocks == 32 && plan.block_stride == stride && plan.tensor_bytes.at[0] == stride * 32);
    CHECK(memcmp(plan.layer_offsets.at, offsets, sizeof offsets) == 0 && plan.layer_tensors.at[7] == 0 && plan.layer_groups.at[7] == 1);
    llm_cache_config config = config_small();
    config.block_size = 0, config.num_gpu_blocks = plan.num_gpu_blocks, config.groups = plan.groups.at, config.groups_len = plan.groups.len;
    OK(llm_cache_close(opened(&config)));
    plan.size = offsetof(llm_cache_plan, block_stride); /* of an older header */
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan));
    plan.size = offsetof(llm_cache_plan, max_concurrent_batches), plan.block_stride = 0; /* of a later one */
    OK(llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan));
    CHECK(plan.block_stride == stride);
    plan.size = sizeof plan;
    layers[0].state_bytes = 0;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan)); /* a page of no bytes */
    layers[0].state_bytes = pages[0], layers[7].flags &= ~LLM_CACHE_LAYER_KEYS_ONLY;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(layers, 8, stride * 32, 0, &plan)); /* keys and values among keys only */

    const llm_cache_layer full = {.kind = LLM_CACHE_FULL, .block_size = 16, .kv_heads = 2, .head_size = 64, .element_bytes = 2};
    llm_cache_layer window = full, hidden = full;
    window.kind = LLM_CACHE_SLIDING_WINDOW, window.window = 32;
    hidden.flags = LLM_CACHE_LAYER_HIDDEN, hidden.head_size = 512; /* 2,048 bytes a token: 4 of them in a page */
    const int64_t page = 2 * 16 * 2 * 64 * 2, second[] = {0, page, 0, page};
    const llm_cache_layer model[] = {full, full, window, window, hidden};
    plan.flags = LLM_CACHE_PLAN_CROSS_LAYERS;
    OK(llm_cache_plan_memory(model, 4, page * 2 * 32, 0, &plan));
    CHECK(plan.block_stride == 2 * page && plan.num_gpu_blocks == 32 && memcmp(plan.layer_offsets.at, second, sizeof second) == 0);
    plan.flags = 0;
    OK(llm_cache_plan_memory(model, 5, page * 2 * 32, 0, &plan));
    CHECK(plan.block_stride == 0 && plan.layer_offsets.len == 0 && plan.groups.len == 3 && plan.groups.at[2].block_size == 4);
    plan.flags = LLM_CACHE_PLAN_FULL;
    OK(llm_cache_plan_memory(model, 4, page * 4 * 32, 0, &plan));
    CHECK(plan.groups.len == 1 && plan.groups.at[0].kind == LLM_CACHE_FULL && plan.num_gpu_blocks == 32);
    plan.flags = 0, plan.max_concurrent_batches = 65;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(model, 4, page * 4 * 32, 0, &plan));
    plan.flags = 4, plan.max_concurrent_batches = 0;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(model, 4, page * 4 * 32, 0, &plan));
    TAKE(plan.groups), TAKE(plan.layer_groups), TAKE(plan.layer_tensors), TAKE(plan.tensor_bytes), TAKE(plan.layer_offsets);
}

/* The longest request of a plan is one that its cache takes, and serves. */
static void longest(void) {
    const llm_cache_layer full = {.kind = LLM_CACHE_FULL, .block_size = 16, .kv_heads = 2, .head_size = 64, .element_bytes = 2};
    llm_cache_layer window = full, chunk = full, state = full;
    window.kind = LLM_CACHE_SLIDING_WINDOW, window.window = 32;
    chunk.kind = LLM_CACHE_CHUNKED_LOCAL, chunk.chunk = 32;
    state.kind = LLM_CACHE_MAMBA, state.state_bytes = 100, state.num_speculative_blocks = 1;
    llm_cache_layer align = state;
    align.flags = LLM_CACHE_GROUP_ALIGN, align.block_size = 64; /* coarser than the others: hits end inside blocks */
    const llm_cache_layer models[][2] = {{full, full}, {full, window}, {window, window}, {full, chunk}, {full, state}, {full, align}, {full, align}};
    llm_cache_plan plan = {.size = sizeof plan};
    GIVE(plan.groups), GIVE(plan.layer_groups), GIVE(plan.layer_tensors), GIVE(plan.tensor_bytes);
    for (int i = 0; i < 7 * 28; i++) {
        plan.max_model_len = 200, plan.max_concurrent_batches = i < 6 * 28 ? 0 : 2;
        int error = llm_cache_plan_memory(models[i / 28], 2, 0, 2 + i % 28, &plan);
        CHECK(error == (plan.longest == 200 ? LLM_CACHE_OK : LLM_CACHE_E_MEMORY));
        if (plan.longest == 0) {
            continue;
        }
        plan.max_model_len = plan.longest;
        OK(llm_cache_plan_memory(models[i / 28], 2, 0, 2 + i % 28, &plan));
        CHECK(plan.longest == plan.max_model_len);
        llm_cache_config config = config_small();
        config.block_size = 0, config.groups = plan.groups.at, config.groups_len = plan.groups.len;
        config.num_gpu_blocks = plan.num_gpu_blocks, config.max_model_len = plan.longest;
        config.max_concurrent_batches = plan.max_concurrent_batches;
        llm_cache cache = opened(&config);
        request(cache, 1, plan.longest - 1, 1);
        do {
            OK(llm_cache_schedule(cache, &step));
            CHECK(step.rows.len == 1);
            sample(cache, &step, &outcome);
        } while (outcome.done.len == 0);
        OK(llm_cache_close(cache));
    }
    TAKE(plan.groups), TAKE(plan.layer_groups), TAKE(plan.layer_tensors), TAKE(plan.tensor_bytes);
}

int main(void) {
    step = step_new();
    outcome = outcome_new();
    extras();
    priorities();
    stops();
    drafts();
    groups();
    aborts();
    events();
    planned();
    planned_packed();
    longest();
    planned_for_workers();
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

/*
 * cache_hostile - what a caller gives may be anything: configs and requests whose fields are at and around every limit
 * get an answer other than LLM_CACHE_E_INTERNAL, and the cache goes on. A call that fails has written nothing, but each len
 * that it needs with LLM_CACHE_E_SMALL, and what fits with LLM_CACHE_E_MEMORY.
 * Its argument is the number of hundreds of requests.
 */
#include <math.h>
#include <stddef.h>

#include "cache_check.h"
#include "llm_attention.h"

static llm_cache_step step;
static llm_cache_outcome outcome;

static uint32_t drawn = 1;

static uint32_t draw(uint32_t n) {
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % n;
}

#define ONE_OF(list) ((list)[draw((uint32_t)(sizeof(list) / sizeof *(list)))])
/* Mostly a good value, so that one bad field is not hidden by another. */
#define MOSTLY(good, list) (draw(12) ? (good) : ONE_OF(list))

enum { PROMPT = 20 };
static const int32_t numbers[] = {INT32_MIN, INT32_MIN + 1, -5, -1, 0, 1, 2, PROMPT - 1, PROMPT, PROMPT + 1, 511, 512, 513, INT32_MAX - 1, INT32_MAX};
static const int64_t lengths[] = {INT64_MIN, -1, 0, 1, PROMPT - 1, PROMPT + 1, 511, 512, 600, (int64_t)1 << 39, (int64_t)1 << 41, INT64_MAX};
static const int64_t stops[] = {INT64_MIN, -1, 1, LLM_CACHE_MAX_STOP, LLM_CACHE_MAX_STOP + 1, (int64_t)1 << 39, INT64_MAX};
static const int64_t counts[] = {INT64_MIN, -1, 0, 1, LLM_CACHE_MAX_ITEMS, LLM_CACHE_MAX_ITEMS + 1, (int64_t)1 << 39, INT64_MAX};
static const int64_t adapters[] = {INT64_MIN, -1, 1, 2, INT64_MAX};
static const uint32_t sizes[] = {0, 1, offsetof(llm_cache_spec, stop), offsetof(llm_cache_spec, salt), offsetof(llm_cache_spec, items),
                                 offsetof(llm_cache_spec, items_len), offsetof(llm_cache_spec, is_embed), 4097, UINT32_MAX};
static const uint32_t flags[] = {1, 2, 4, 8, 16, 32, 63, 64, 128, UINT32_MAX};
static int32_t tokens[LLM_CACHE_MAX_STOP + 1];
static llm_cache_item items[LLM_CACHE_MAX_ITEMS + 1];
static uint8_t is_embed[LLM_CACHE_MAX_ITEMS];
static char longest[LLM_CACHE_MAX_TEXT + 1], too_long[LLM_CACHE_MAX_TEXT + 2];

static llm_cache_spec any_spec(void) {
    const char *const texts[] = {"", "a", "b", longest, too_long};
    const double times[] = {-1, 1e308, INFINITY, -INFINITY, NAN};
    llm_cache_spec s = {.size = MOSTLY((uint32_t)sizeof s, sizes), .flags = draw(4) ? 0 : ONE_OF(flags)};
    s.tokens = (llm_cache_tokens){tokens, MOSTLY(PROMPT, lengths)};
    s.max_tokens = MOSTLY(3, numbers), s.min_tokens = MOSTLY(0, numbers);
    s.stop = (llm_cache_tokens){tokens, MOSTLY(0, stops)};
    s.salt = MOSTLY(NULL, texts), s.lora = MOSTLY(NULL, texts), s.lora_id = MOSTLY(0, adapters);
    s.arrival = MOSTLY(0, times), s.priority = MOSTLY(0, numbers), s.external = MOSTLY(0, numbers);
    for (int i = 0; i < 3; i++) {
        items[i].hash = draw(12) ? texts[1 + draw(3)] : draw(2) ? NULL : ONE_OF(texts);
        items[i].offset = draw(4) ? 5 * i : ONE_OF(numbers);
        items[i].length = draw(4) ? 5 : ONE_OF(numbers);
    }
    s.items = draw(12) ? items : NULL, s.items_len = draw(12) ? draw(4) : ONE_OF(counts);
    s.is_embed = draw(2) ? is_embed : NULL;
    return s;
}

/* Every answer but LLM_CACHE_E_INTERNAL will do, and one that fails gives no id. */
static void specs(int hundreds) {
    llm_cache_config config = config_small();
    config.encoder_cache_size = 12, config.max_num_encoder_input_tokens = 10, config.max_loras = 1;
    config.flags = LLM_CACHE_KV_CONSUMER | LLM_CACHE_KV_PRODUCER | LLM_CACHE_EVENTS | LLM_CACHE_ZERO_BLOCKS;
    int added = 0, refused = 0;
    for (int round = 0; round < 100 * hundreds; round++) {
        config.flags ^= round % 10 ? 0 : LLM_CACHE_EAGLE; /* a draft model reads ahead of the items */
        llm_cache cache = opened(&config);
        llm_cache_spec spec = any_spec();
        llm_request id = 99;
        int got = llm_cache_add(cache, &spec, &id);
        CHECK(got == LLM_CACHE_OK || got == LLM_CACHE_E_NULL || got == LLM_CACHE_E_SIZE || got == LLM_CACHE_E_RANGE ||
              got == LLM_CACHE_E_OVERLAP); /* a long array reaches id */
        CHECK((got == LLM_CACHE_OK) != (id == 99));
        if (got) {
            refused++;
            id = request(cache, 0, 5, 1); /* the cache goes on */
        } else {
            added++;
            int known = llm_cache_match(cache, id, ONE_OF(numbers), ONE_OF(flags));
            CHECK(known == LLM_CACHE_OK || known == LLM_CACHE_E_RANGE);
        }
        OK(llm_cache_schedule(cache, &step));
        if (step.rows.len > 0) {
            sample(cache, &step, &outcome);
        }
        llm_cache_stats stats = {.size = sizeof stats};
        OK(llm_cache_statistics(cache, &stats));
        OK(llm_cache_close(cache));
    }
    CHECK(added > 10 * hundreds && refused > 10 * hundreds);
}

static llm_cache_group groups[LLM_CACHE_MAX_GROUPS];

static llm_cache_config any_config(void) {
    static const int32_t blocks[] = {INT32_MIN, -1, 0, 1, 2, 3, LLM_CACHE_MAX_BLOCKS + 1, INT32_MAX};
    static const int32_t block_sizes[] = {INT32_MIN, 0, 1, 3, 65521, LLM_CACHE_MAX_BLOCK_SIZE, LLM_CACHE_MAX_BLOCK_SIZE + 1, INT32_MAX};
    static const int32_t longest_of[] = {INT32_MIN, 0, 1, 2, LLM_CACHE_MAX_MODEL_LEN, LLM_CACHE_MAX_MODEL_LEN + 1, INT32_MAX};
    static const uint32_t some_flags[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 0xfff, UINT32_MAX};
    static const double parts[] = {-1, 0, 0.5, 1, 2, INFINITY, NAN};
    const char *const seeds[] = {"", "a", longest, too_long};
    llm_cache_config c = config_small();
    c.num_gpu_blocks = MOSTLY(100, blocks), c.block_size = MOSTLY(16, block_sizes), c.max_num_seqs = MOSTLY(8, numbers);
    c.max_num_batched_tokens = MOSTLY(512, numbers), c.max_model_len = MOSTLY(512, longest_of);
    c.policy = MOSTLY(1, numbers), c.hash = (int32_t)draw(3), c.hash_seed = MOSTLY(NULL, seeds);
    c.flags = (draw(2) ? 0 : ONE_OF(some_flags)) | (draw(2) ? 0 : ONE_OF(some_flags));
    c.long_prefill_token_threshold = MOSTLY(0, numbers), c.num_lookahead_tokens = MOSTLY(0, numbers), c.num_speculative_tokens = MOSTLY(0, numbers);
    c.watermark = MOSTLY(0, parts), c.retention_interval = MOSTLY(0, numbers), c.scheduler_block_size = MOSTLY(0, block_sizes);
    c.pipeline_parallel_size = MOSTLY(0, numbers), c.max_concurrent_batches = MOSTLY(0, numbers), c.max_in_flight_tokens = MOSTLY(0, numbers);
    c.max_loras = MOSTLY(0, numbers), c.encoder_cache_size = MOSTLY(20, numbers), c.max_num_encoder_input_tokens = MOSTLY(0, numbers);
    for (int g = 0; g < 3; g++) {
        groups[g] = (llm_cache_group){.kind = (int32_t)draw(4), .block_size = MOSTLY(16, block_sizes), .flags = draw(4) ? 0 : (int32_t)draw(5)};
        groups[g].window = groups[g].kind == LLM_CACHE_SLIDING_WINDOW ? MOSTLY(8, numbers) : MOSTLY(0, numbers);
        groups[g].chunk = groups[g].kind == LLM_CACHE_CHUNKED_LOCAL ? MOSTLY(32, numbers) : MOSTLY(0, numbers);
        groups[g].retained = MOSTLY(0, numbers), groups[g].num_speculative_blocks = MOSTLY(0, numbers), groups[g].reserved = MOSTLY(0, numbers);
    }
    if (draw(2)) {
        c.groups = groups, c.groups_len = draw(12) ? 1 + draw(3) : ONE_OF(lengths), c.block_size = 0;
    }
    return c;
}

/* A config is refused, or its cache serves. */
static void configs(int hundreds) {
    int made = 0, refused = 0;
    for (int round = 0; round < 100 * hundreds; round++) {
        llm_cache_config config = any_config();
        llm_cache cache = 99;
        int got = llm_cache_open(&config, &cache);
        CHECK(got == LLM_CACHE_OK || got == LLM_CACHE_E_RANGE); /* groups are counted before their memory is looked at */
        CHECK((got == LLM_CACHE_OK) != (cache == 99));
        if (got) {
            refused++;
            continue;
        }
        made++;
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 10}, .max_tokens = 3};
        llm_request id;
        got = llm_cache_add(cache, &spec, &id);
        CHECK(got == LLM_CACHE_OK || got == LLM_CACHE_E_RANGE); /* too long, or too few blocks */
        for (int steps = 0; steps < 3; steps++) {
            OK(llm_cache_schedule(cache, &step));
            if (step.rows.len > 0) {
                sample(cache, &step, &outcome);
            }
        }
        OK(llm_cache_close(cache));
    }
    CHECK(made > 5 * hundreds && refused > 5 * hundreds);
}

/* The len of each array of a step. */
enum { ARRAYS = 16 };
static void lens_of(llm_cache_step *s, int64_t *lens[ARRAYS]) {
    int64_t *const all[ARRAYS] = {&s->rows.len,   &s->drafts.len,    &s->blocks.len,   &s->block_starts.len, &s->block_ends.len, &s->slots.len,
                                  &s->copies.len, &s->common.len,    &s->preempted.len, &s->finished.len,    &s->loads.len,      &s->queries.len,
                                  &s->encoder_inputs.len, &s->freed_encoder_outputs.len, &s->zero.len, &s->tails.len};
    memcpy(lens, all, sizeof all);
}

/* A step that has more to say than an old struct can hold is kept, and the struct is as it was. */
static void old_steps(void) {
    const size_t lacks_one[] = {offsetof(llm_cache_step, loads), offsetof(llm_cache_step, encoder_inputs), offsetof(llm_cache_step, zero)};
    const llm_cache_item item = {.hash = "cat", .offset = 2, .length = 5};
    for (int i = 0; i < 3; i++) {
        llm_cache_config config = config_small();
        config.encoder_cache_size = i == 1 ? 20 : 0;
        config.flags = i == 0 ? LLM_CACHE_KV_CONSUMER : i == 2 ? LLM_CACHE_ZERO_BLOCKS : 0;
        llm_cache cache = opened(&config);
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, PROMPT}, .max_tokens = 3, .items = &item, .items_len = 1};
        spec.flags = i == 0 ? LLM_CACHE_ASK : 0;
        llm_request id = 0;
        OK(llm_cache_add(cache, &spec, &id));
        int64_t *lens[ARRAYS];
        llm_cache_step old = step;
        lens_of(&old, lens);
        for (int a = 0; a < ARRAYS; a++) {
            *lens[a] = -7;
        }
        old.tokens = -7;
        old.size = (uint32_t)lacks_one[i];
        for (int twice = 0; twice < 2; twice++) {
            EXPECT(LLM_CACHE_E_SIZE, llm_cache_schedule(cache, &old));
            for (int a = 0; a < ARRAYS; a++) {
                CHECK(*lens[a] == -7);
            }
            CHECK(old.tokens == -7);
        }
        OK(llm_cache_schedule(cache, &step));
        CHECK(i == 0 ? step.queries.len == 1 : step.rows.len == 1 && step.rows.at[0].id == id);
        CHECK((i == 1) == (step.encoder_inputs.len == 1) && (i == 2) == (step.zero.len > 0));
        OK(llm_cache_close(cache));
    }
}

/* Only a consumer has loads that fail. */
static void no_loads(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    llm_cache_load_failure failure = {.size = sizeof failure, .affected.len = -7, .void_rows.len = -7};
    const int32_t block = 1, outside = 100;
    EXPECT(LLM_CACHE_E_ORDER, llm_cache_load_failed(cache, &block, 1, &failure));
    CHECK(failure.affected.len == -7 && failure.void_rows.len == -7);
    OK(llm_cache_close(cache));
    config.flags = LLM_CACHE_KV_CONSUMER;
    cache = opened(&config);
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_load_failed(cache, &outside, 1, &failure));
    CHECK(failure.affected.len == -7 && failure.void_rows.len == -7);
    EXPECT(LLM_CACHE_E_NULL, llm_cache_load_failed(cache, &block, 1, NULL));
    failure.reserved = 1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_load_failed(cache, &block, 1, &failure));
    failure.reserved = 0, failure.size -= 8;
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_load_failed(cache, &block, 1, &failure));
    OK(llm_cache_close(cache));
}

enum { LAYERS = 3 };
static llm_cache_group groups_of[2][LAYERS];
static int32_t numbers_of[2][2][LAYERS];
static int64_t bytes_of[2][2][LAYERS];

/* Two plans with -7 in all that a call may write. */
static void fresh(llm_cache_plan plans[2]) {
    for (int i = 0; i < 2; i++) {
        plans[i] = (llm_cache_plan){.size = sizeof plans[i], .num_gpu_blocks = -7, .max_model_len = 64, .request_bytes = -7, .longest = -7, .block_stride = -7};
        plans[i].groups = (llm_cache_group_list){groups_of[i], LAYERS, -7};
        plans[i].layer_groups = (llm_cache_i32s){numbers_of[i][0], LAYERS, -7}, plans[i].layer_tensors = (llm_cache_i32s){numbers_of[i][1], LAYERS, -7};
        plans[i].tensor_bytes = (llm_cache_i64s){bytes_of[i][0], LAYERS, -7}, plans[i].layer_offsets = (llm_cache_i64s){bytes_of[i][1], LAYERS, -7};
        for (int l = 0; l < LAYERS; l++) {
            numbers_of[i][0][l] = numbers_of[i][1][l] = -7, bytes_of[i][0][l] = bytes_of[i][1][l] = -7, groups_of[i][l].block_size = -7;
        }
    }
}

/* Nothing is written, but lens if asked for, and what fits. */
static void untouched(const llm_cache_plan plans[2], int lens, int fits) {
    for (int i = 0; i < 2; i++) {
        const llm_cache_plan *p = &plans[i];
        CHECK(p->num_gpu_blocks == -7 && p->block_stride == -7);
        CHECK((p->request_bytes == -7) == !fits && (p->longest == -7) == !fits);
        CHECK((p->groups.len == -7) == !lens && (p->layer_groups.len == -7) == !lens && (p->layer_tensors.len == -7) == !lens);
        CHECK((p->tensor_bytes.len == -7) == !lens && (p->layer_offsets.len == -7) == !lens);
        for (int l = 0; l < LAYERS; l++) {
            CHECK(numbers_of[i][0][l] == -7 && numbers_of[i][1][l] == -7 && bytes_of[i][0][l] == -7 && bytes_of[i][1][l] == -7);
            CHECK(groups_of[i][l].block_size == -7);
        }
    }
}

static void plans_that_fail(void) {
    llm_cache_layer layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        layers[l] = (llm_cache_layer){.block_size = 16, .kv_heads = 2, .head_size = 64, .element_bytes = 2};
    }
    layers[2].kind = LLM_CACHE_SLIDING_WINDOW, layers[2].window = 8;
    const int32_t first[] = {0, 2}, second[] = {1, 2};
    const llm_cache_worker workers[] = {{1 << 20, first, 2}, {1 << 20, second, 2}};
    llm_cache_plan plans[2], *both[] = {&plans[0], &plans[1]};
    fresh(plans);
    plans[1].max_model_len = -1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_workers(layers, LAYERS, workers, 2, 0, both));
    untouched(plans, 0, 0);
    fresh(plans);
    plans[1].groups.cap = 0;
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_plan_workers(layers, LAYERS, workers, 2, 0, both));
    untouched(plans, 1, 0);
    CHECK(plans[0].groups.len == 3 && plans[1].groups.len == 3 && plans[0].layer_groups.len == LAYERS);
    for (int small = 0; small < 2; small++) { /* which of the two does not hold a request of its length */
        fresh(plans);
        plans[small].max_model_len = 100000;
        EXPECT(LLM_CACHE_E_MEMORY, llm_cache_plan_workers(layers, LAYERS, workers, 2, 0, both));
        untouched(plans, 0, 1);
        CHECK(plans[!small].longest == 64 && plans[small].longest > 64 && plans[small].longest < 100000);
        CHECK(plans[small].request_bytes > 1 << 20 && plans[!small].request_bytes > 0 && plans[!small].request_bytes < 1 << 20);
    }
    fresh(plans);
    plans[0].flags = plans[1].flags = LLM_CACHE_PLAN_CROSS_LAYERS;
    plans[1].size = offsetof(llm_cache_plan, block_stride);
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_plan_workers(layers, LAYERS, workers, 2, 0, both));
    untouched(plans, 0, 0);
    fresh(plans);
    OK(llm_cache_plan_workers(layers, LAYERS, workers, 2, 0, both));
    CHECK(plans[0].longest == 64 && plans[1].longest == 64 && plans[0].request_bytes > 0 && plans[0].block_stride == 0);
}

/* A block that would have to be made too large, and more groups than a cache can have, are refused. */
static void plans_of_no_cache(void) {
    llm_cache_plan plans[2];
    llm_cache_layer two[] = {{.block_size = 16, .kv_heads = 1, .head_size = 1, .element_bytes = 1},
                             {.kind = LLM_CACHE_SLIDING_WINDOW, .window = 8, .block_size = 16, .kv_heads = 1 << 14, .head_size = 1 << 14, .element_bytes = 16}};
    fresh(plans);
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(two, 2, (int64_t)1 << 62, 4, &plans[0]));
    CHECK(strstr(llm_cache_error_detail(), "more than 65536 tokens") != NULL);
    untouched(plans, 0, 0);
    two[0] = (llm_cache_layer){.block_size = LLM_CACHE_MAX_BLOCK_SIZE, .flags = LLM_CACHE_LAYER_PAGE, .state_bytes = 1};
    two[1] = (llm_cache_layer){.kind = LLM_CACHE_MAMBA, .block_size = 16, .state_bytes = (int64_t)1 << 44};
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(two, 2, (int64_t)1 << 62, 4, &plans[0]));
    two[1].num_speculative_blocks = INT32_MAX;
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(two, 2, (int64_t)1 << 62, 4, &plans[0]));
    static llm_cache_layer windows[LLM_CACHE_MAX_GROUPS + 1];
    for (int i = 0; i <= LLM_CACHE_MAX_GROUPS; i++) {
        windows[i] = (llm_cache_layer){.kind = LLM_CACHE_SLIDING_WINDOW, .window = 1 + i, .block_size = 16, .kv_heads = 1, .head_size = 64, .element_bytes = 2};
    }
    EXPECT(LLM_CACHE_E_RANGE, llm_cache_plan_memory(windows, LLM_CACHE_MAX_GROUPS + 1, 1 << 30, 0, &plans[0]));
    CHECK(strstr(llm_cache_error_detail(), "65 groups") != NULL);
    untouched(plans, 0, 0);
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_plan_memory(windows, LLM_CACHE_MAX_GROUPS, 1 << 30, 0, &plans[0]));
}

/* A store does not begin a part of a step: its blocks and the step before stay as they are. */
static void steps_of_no_scheduler(void) {
    llm_kvstore_config config = {.size = sizeof config, .layers = 1, .blocks = 8, .block_size = 16, .kv_heads = 1, .head_size = 32, .threads = 1};
    llm_kvstore store;
    OK(llm_kvstore_open(&config, &store));
    llm_attention_cache memory = {.size = sizeof memory};
    OK(llm_kvstore_layer(store, 0, &memory));
    float data[32] = {1, 2, 3};
    llm_tensor keys = {.at = data, .rows = 1, .stride = 32}, values = keys;
    llm_cache_row row = {.id = 5, .kind = LLM_CACHE_ROW_NEW, .tokens = 1};
    llm_cache_copy copy = {.src = 1, .dst = 2, .index = -1, .id = 5};
    llm_request gone = 5;
    int32_t block = 1;
    int64_t start = 0, end = 1, slot = 16;
    llm_cache_step good = {.size = sizeof good, .tokens = 1, .rows = {&row, 1, 1}, .blocks = {&block, 1, 1}};
    good.block_starts = (llm_cache_i64s){&start, 1, 1}, good.block_ends = (llm_cache_i64s){&end, 1, 1}, good.slots = (llm_cache_i64s){&slot, 1, 1};
    OK(llm_kvstore_begin(store, &good));
    OK(llm_kvstore_write(store, 0, &keys, &values, NULL));
    unsigned char *was = malloc((size_t)memory.key_bytes);
    CHECK(was != NULL);
    memcpy(was, memory.key, (size_t)memory.key_bytes);
    llm_cache_step bad = good;
    bad.copies = (llm_cache_copies){&copy, 1, 1};
    block = 8; /* there are 8, from 0 on */
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &bad));
    block = 1, row.tokens = 2;
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &bad));
    row.tokens = 1, row.kind = LLM_CACHE_ROW_RUNNING;
    bad.preempted = (llm_cache_ids){&gone, 1, 1};
    EXPECT(LLM_CACHE_E_REQUEST, llm_kvstore_begin(store, &bad));
    CHECK(memcmp(was, memory.key, (size_t)memory.key_bytes) == 0);
    OK(llm_kvstore_write(store, 0, &keys, &values, NULL)); /* of the step before */
    bad.preempted.len = 0, row.computed = 1, start = 1, end = 0, bad.blocks.len = 0;
    OK(llm_kvstore_begin(store, &bad)); /* its table is still there */
    CHECK(memcmp(was, memory.key, (size_t)memory.key_bytes) != 0);
    OK(llm_kvstore_close(store));
    free(was);
}

int main(int argc, char **argv) {
    step = step_new();
    outcome = outcome_new();
    for (int i = 0; i < LLM_CACHE_MAX_STOP + 1; i++) {
        tokens[i] = i;
    }
    for (int i = 0; i < LLM_CACHE_MAX_ITEMS + 1; i++) {
        items[i] = (llm_cache_item){"i", i, 1};
    }
    memset(longest, 'x', LLM_CACHE_MAX_TEXT);
    memset(too_long, 'x', LLM_CACHE_MAX_TEXT + 1);
    is_embed[3] = is_embed[7] = is_embed[12] = 1;
    old_steps();
    no_loads();
    plans_that_fail();
    plans_of_no_cache();
    steps_of_no_scheduler();
    configs(argc > 1 ? atoi(argv[1]) : 10);
    specs(argc > 1 ? atoi(argv[1]) : 10);
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

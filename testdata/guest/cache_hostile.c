/*
 * cache_hostile - what a caller gives may be anything: requests whose fields are at and around every limit get an
 * answer other than LLM_CACHE_E_INTERNAL, and the cache goes on.
 * Its argument is the number of thousands of requests.
 */
#include <math.h>
#include <stddef.h>

#include "cache_check.h"

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
                                 offsetof(llm_cache_spec, items_len), offsetof(llm_cache_spec, is_embed), sizeof(llm_cache_spec) + 1, UINT32_MAX};
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
static void specs(int thousands) {
    llm_cache_config config = config_small();
    config.encoder_cache_size = 12, config.max_num_encoder_input_tokens = 10, config.max_loras = 1;
    config.flags = LLM_CACHE_KV_CONSUMER | LLM_CACHE_KV_PRODUCER | LLM_CACHE_EVENTS;
    int added = 0, refused = 0;
    for (int round = 0; round < 1000 * thousands; round++) {
        config.flags ^= round % 100 ? 0 : LLM_CACHE_EAGLE; /* a draft model reads ahead of the items */
        llm_cache cache = opened(&config);
        llm_cache_spec spec = any_spec();
        llm_request id = 99;
        int got = llm_cache_add(cache, &spec, &id);
        CHECK(got == LLM_CACHE_OK || got == LLM_CACHE_E_NULL || got == LLM_CACHE_E_SIZE || got == LLM_CACHE_E_RANGE);
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
    CHECK(added > 100 * thousands && refused > 100 * thousands);
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
    specs(argc > 1 ? atoi(argv[1]) : 1);
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}

/*
 * cache_traffic [ROUNDS] - the loop of the header, to the end, over random requests: with
 * priorities, in so few blocks that requests lose theirs all the time, with and
 * without steps in flight. It must not stop while requests wait, and must end.
 */
#include "cache_check.h"

enum { REQUESTS = 60, FLIGHTS = 4 };

static uint64_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static void add(llm_cache cache, double arrival) {
    int32_t tokens[64], n = (int32_t)(1 + draw(40));
    for (int i = 0; i < n; i++) {
        tokens[i] = (int32_t)draw(8) == 0;
    }
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, n}, .max_tokens = (int32_t)(1 + draw(24)),
                           .priority = (int32_t)draw(3), .arrival = arrival};
    spec.min_tokens = (int32_t)draw((uint32_t)spec.max_tokens + 1);
    llm_request id;
    OK(llm_cache_add(cache, &spec, &id));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 12;
    llm_cache_step steps[FLIGHTS];
    for (int i = 0; i < FLIGHTS; i++) {
        steps[i] = step_new();
    }
    llm_cache_outcome outcome = outcome_new();
    static int32_t counts[ROOM], sampled[ROOM];
    int64_t preemptions = 0;
    for (int round = 0; round < rounds; round++) {
        llm_cache_config config = config_small();
        config.num_gpu_blocks = 18;
        config.block_size = 4;
        config.max_model_len = 64;
        config.max_num_batched_tokens = 24;
        config.policy = LLM_CACHE_PRIORITY;
        config.flags = round % 3 == 1 ? LLM_CACHE_ASYNC : 0;
        config.pipeline_parallel_size = round % 3;
        llm_cache cache = opened(&config);
        int arrived = 0, done = 0, first = 0, flying = 0;
        for (;;) {
            for (int i = 0; i < 2 && arrived < REQUESTS; i++) {
                add(cache, round % 2 ? arrived : 0); /* also equal ones */
                arrived++;
            }
            llm_cache_step *step = &steps[(first + flying) % FLIGHTS];
            int error = llm_cache_schedule(cache, step);
            if (error == LLM_CACHE_OK) {
                preemptions += step->preempted.len;
                if (step->rows.len > 0) {
                    flying++;
                    continue; /* as many as may be */
                }
                if (flying == 0) {
                    break;
                }
            } else {
                CHECK(error == LLM_CACHE_E_ORDER && flying > 0);
            }
            step = &steps[first];
            first = (first + 1) % FLIGHTS;
            flying--;
            if (draw(20) == 0) {
                OK(llm_cache_step_failed(cache));
                flying = 0;
                continue;
            }
            int64_t n = 0;
            for (int64_t i = 0; i < step->rows.len; i++) {
                counts[i] = step->rows.at[i].samples && draw(12) != 0;
                if (counts[i]) {
                    sampled[n++] = (int32_t)draw(2);
                }
            }
            OK(llm_cache_update(cache, counts, step->rows.len, sampled, n, &outcome));
            done += (int)outcome.done.len;
        }
        CHECK(arrived == REQUESTS && done == REQUESTS);
        llm_cache_stats stats = {.size = sizeof stats};
        OK(llm_cache_statistics(cache, &stats));
        CHECK(stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.blocks && stats.preemptions > 0);
        OK(llm_cache_close(cache));
    }
    CHECK(preemptions > 0);
    for (int i = 0; i < FLIGHTS; i++) {
        step_free(&steps[i]);
    }
    outcome_free(&outcome);
    return 0;
}

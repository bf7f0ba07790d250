/*
 * cache - the row of `make bench` for libllm_cache: a step in which 256 requests
 * decode one token each, llm_cache_schedule and llm_cache_update together, the
 * processor's time of the measuring thread. A sample is as many steps as fill a block,
 * so that each has its share of hashing; the median sample counts.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "llm_cache.h"

enum { RUNNING = 256, PROMPT = 512, OUTPUT = 2048, BLOCK = 16, SAMPLES = 112, WARM_UP = 6 };

static void must(int error) {
    if (error) {
        fprintf(stderr, "cache: %s (%s)\n", llm_cache_error_text(error), llm_cache_error_detail());
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *entries(size_t n, size_t size) {
    void *at = calloc(n, size);
    if (at == NULL) {
        exit(1);
    }
    return at;
}

#define GIVE(a, n) ((a).at = entries((n), sizeof *(a).at), (a).cap = (n))

/* The median time of a step, with one or two steps in flight. */
static double measure(int flights) {
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = RUNNING * (PROMPT + OUTPUT) / BLOCK + 1, .block_size = BLOCK,
        .max_num_seqs = RUNNING, .max_num_batched_tokens = RUNNING * PROMPT, .max_model_len = PROMPT + OUTPUT,
        .flags = flights > 1 ? LLM_CACHE_ASYNC : 0,
    };
    llm_cache cache;
    must(llm_cache_open(&config, &cache));
    static int32_t tokens[PROMPT], counts[RUNNING], sampled[RUNNING];
    for (int i = 0; i < RUNNING; i++) {
        for (int k = 0; k < PROMPT; k++) {
            tokens[k] = (i * 7919 + k * 31) & 0xffff;
        }
        llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, PROMPT}, .max_tokens = OUTPUT};
        llm_request id;
        must(llm_cache_add(cache, &spec, &id));
        counts[i] = 1;
    }
    llm_cache_step step = {.size = sizeof step};
    GIVE(step.rows, RUNNING), GIVE(step.drafts, 1), GIVE(step.blocks, RUNNING * (PROMPT / BLOCK + 1));
    GIVE(step.block_starts, RUNNING), GIVE(step.block_ends, RUNNING), GIVE(step.slots, RUNNING * PROMPT);
    GIVE(step.copies, RUNNING), GIVE(step.common, 1), GIVE(step.preempted, RUNNING), GIVE(step.finished, RUNNING);
    llm_cache_outcome outcome = {.size = sizeof outcome};
    GIVE(outcome.kept, RUNNING), GIVE(outcome.done, RUNNING);
    static double times[SAMPLES];
    for (int i = 1; i < flights; i++) {
        must(llm_cache_schedule(cache, &step));
    }
    for (int i = -WARM_UP; i < SAMPLES; i++) {
        double spent = 0;
        for (int s = 0; s < BLOCK; s++) {
            for (int k = 0; k < RUNNING; k++) {
                sampled[k] = (i * BLOCK + s + k) & 0xffff;
            }
            double before = now();
            must(llm_cache_schedule(cache, &step));
            must(llm_cache_update(cache, counts, RUNNING, sampled, RUNNING, &outcome));
            spent += now() - before;
            if (step.rows.len != RUNNING || outcome.done.len != 0) {
                fprintf(stderr, "cache: a request does not decode\n");
                exit(1);
            }
        }
        if (i >= 0) {
            times[i] = spent / BLOCK;
        }
    }
    must(llm_cache_close(cache));
    qsort(times, SAMPLES, sizeof times[0], by_value);
    free(step.rows.at), free(step.drafts.at), free(step.blocks.at), free(step.block_starts.at),
        free(step.block_ends.at);
    free(step.slots.at), free(step.copies.at), free(step.common.at), free(step.preempted.at), free(step.finished.at);
    free(outcome.kept.at), free(outcome.done.at);
    return times[SAMPLES / 2];
}

int main(void) {
    printf("%-46s %10s %10s %7.1f µs\n", "schedule of 256 decodes + update, from C", "3300.0 µs", "40.0 µs",
        measure(1));
    printf("%-46s %10s %10s %7.1f µs\n", "  with two steps in flight", "", "30.0 µs", measure(2));
    return 0;
}

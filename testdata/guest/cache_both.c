/*
 * cache_both - the course's library and the serving core's in one process, two
 * Go runtimes: both are called in turn, from the main thread and from others,
 * while the second one collects garbage.
 */
#include <pthread.h>

#include "cache_check.h"
#include "llm_memory.h"

enum { TIMES = 300, THREADS = 4 };

static char pool[THREADS + 1][64 * BLOCK_SIZE];

static void *work(void *number) {
    intptr_t me = (intptr_t)number;
    llm_cache_config config = config_small();
    llm_cache_step step = step_new();
    llm_cache_outcome outcome = outcome_new();
    for (int i = 0; i < TIMES; i++) {
        LLMEngine *engine = llm_init(pool[me], sizeof pool[me]);
        CHECK(engine != NULL);
        llm_cache cache = opened(&config);
        CHECK(create_sequence(engine, 1, 3) != NULL);
        request(cache, i, 40, 2);
        do {
            CHECK(append_kv(engine, 1, i) == 0);
            OK(llm_cache_schedule(cache, &step));
            if (step.rows.len > 0) {
                sample(cache, &step, &outcome);
            }
        } while (step.rows.len > 0);
        OK(llm_cache_close(cache));
        CHECK(free_sequence(engine, 1) == 0);
        CHECK(engine->free_local_blocks == engine->total_local_blocks);
        CHECK(llm_destroy(engine) == 0);
    }
    step_free(&step);
    outcome_free(&outcome);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    work((void *)(intptr_t)THREADS);
    for (intptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}

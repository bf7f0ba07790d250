/*
 * cache_threads MODE TIMES - eight threads that call at the same time:
 *
 *   one      one schedules and updates, seven add, fork, abort and look, on one cache
 *   own      each serves on a cache of its own
 *   close    seven call on a cache that the eighth closes
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "cache_check.h"

enum { THREADS = 8 };

static long times;
static llm_cache shared;
static _Atomic int working;
static _Atomic int64_t added, forked;

static void one_step(llm_cache cache, llm_cache_step *step, llm_cache_outcome *outcome) {
    OK(llm_cache_schedule(cache, step));
    if (step->rows.len > 0) {
        sample(cache, step, outcome);
    }
}

static void *serve(void *unused) {
    (void)unused;
    llm_cache_step step = step_new();
    llm_cache_outcome outcome = outcome_new();
    int others;
    do {
        others = atomic_load(&working); /* before the step: what the last one added is in it */
        one_step(shared, &step, &outcome);
        if (step.rows.len == 0) {
            sched_yield();
        }
    } while (others > 0 || step.rows.len > 0);
    step_free(&step);
    outcome_free(&outcome);
    return NULL;
}

static void *ask(void *number) {
    int32_t blocks[64];
    for (long i = 0; i < times; i++) {
        llm_request id = request(shared, 1000 * (int32_t)(intptr_t)number, 20 + (int)(i % 40), 3), child = 0;
        llm_cache_i32s table = {.at = blocks, .cap = 64};
        llm_cache_stats stats = {.size = sizeof stats};
        int64_t computed, all, aborted;
        atomic_fetch_add(&added, 1);
        int status = llm_cache_table(shared, id, 0, &table);
        CHECK(status == LLM_CACHE_OK || status == LLM_CACHE_E_REQUEST);
        status = llm_cache_progress(shared, id, &computed, &all);
        CHECK(status == LLM_CACHE_E_REQUEST || (status == LLM_CACHE_OK && computed <= all));
        status = llm_cache_fork(shared, id, -1, (double)i, &child);
        CHECK(status == LLM_CACHE_OK || status == LLM_CACHE_E_REQUEST || status == LLM_CACHE_E_ORDER);
        atomic_fetch_add(&forked, status == LLM_CACHE_OK);
        OK(llm_cache_statistics(shared, &stats));
        CHECK(stats.free_blocks <= stats.blocks);
        if (i % 3 == 0) {
            OK(llm_cache_abort(shared, &id, 1, &aborted));
            EXPECT(LLM_CACHE_E_REQUEST, llm_cache_table(shared, id, 0, &table));
        }
    }
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static void *own(void *number) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    llm_cache_step step = step_new();
    llm_cache_outcome outcome = outcome_new();
    for (long i = 0; i < times; i++) {
        request(cache, 1000 * (int32_t)(intptr_t)number, 20 + (int)(i % 40), 3);
        do {
            one_step(cache, &step, &outcome);
        } while (step.rows.len > 0);
    }
    llm_cache_stats stats = {.size = sizeof stats};
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.requests == times && stats.free_blocks == stats.blocks);
    OK(llm_cache_close(cache));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cache_close(cache));
    step_free(&step);
    outcome_free(&outcome);
    return NULL;
}

static void *until_closed(void *number) {
    int32_t tokens[20] = {(int32_t)(intptr_t)number};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 2};
    llm_cache_step step = step_new();
    atomic_fetch_add(&working, 1);
    for (;;) {
        llm_request id, child;
        int64_t aborted;
        int status = llm_cache_add(shared, &spec, &id);
        if (status == LLM_CACHE_OK) {
            status = llm_cache_fork(shared, id, -1, 1, &child);
        }
        if (status == LLM_CACHE_OK || status == LLM_CACHE_E_ORDER) {
            status = llm_cache_schedule(shared, &step);
        }
        if (status == LLM_CACHE_OK || status == LLM_CACHE_E_ORDER) {
            status = llm_cache_abort(shared, &id, 1, &aborted);
        }
        if (status == LLM_CACHE_E_HANDLE) {
            break;
        }
        CHECK(status == LLM_CACHE_OK || status == LLM_CACHE_E_ORDER || status == LLM_CACHE_E_REQUEST);
    }
    step_free(&step);
    return NULL;
}

static void together(void *(*first)(void *), void *(*others)(void *)) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, i == 0 ? first : others, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void *close_it(void *unused) {
    (void)unused;
    while (atomic_load(&working) < THREADS - 1) {
        sched_yield();
    }
    for (int i = 0; i < 100; i++) {
        llm_cache_stats stats = {.size = sizeof stats};
        OK(llm_cache_statistics(shared, &stats));
    }
    OK(llm_cache_close(shared));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    times = atol(argv[2]);
    llm_cache_config config = config_small();
    if (strcmp(argv[1], "own") == 0) {
        together(own, own);
    } else if (strcmp(argv[1], "one") == 0) {
        working = THREADS - 1;
        shared = opened(&config);
        together(serve, ask);
        llm_cache_stats stats = {.size = sizeof stats};
        OK(llm_cache_statistics(shared, &stats));
        CHECK(stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.blocks);
        CHECK(added == (THREADS - 1) * times);
        OK(llm_cache_close(shared));
    } else {
        for (long i = 0; i < times; i++) {
            working = 0;
            shared = opened(&config);
            together(close_it, until_closed);
        }
    }
    return 0;
}

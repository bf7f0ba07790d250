//go:build ignore

/*
 * What the handout does not require, but a good submission does: handle a malloc that
 * returns NULL, and a length near INT_MAX. Run with --advice.
 */
#include <limits.h>
#include <string.h>

#include "heap.h"
#include "state.h"

/* For every n, the n-th allocation of the call fails, until the call succeeds. */
TEST(advice_init_survives_malloc_failure,
     "(advice) malloc and calloc can return NULL; then return NULL, and leak nothing.") {
    struct pool pool;
    pool_open(&pool, 640);
    LLMEngine *engine = NULL;
    for (long n = 1; engine == NULL && n < 10; n++) {
        heap_fail_nth(n);
        engine = llm_init(pool.at, 640);
        CHECK(engine == NULL || engine->ref_count != NULL);
        CHECK(engine != NULL || heap_live() == 0);
    }
    heap_fail_nth(0);
    CHECK(engine != NULL);
    CHECK_INT(llm_destroy(engine), 0);
    pool_close(&pool);
}

TEST(advice_create_survives_malloc_failure,
     "(advice) malloc can return NULL; then return NULL, change nothing, leak nothing.") {
    struct world w;
    world_open(&w, 40);
    Sequence *seq = NULL;
    for (long n = 1; seq == NULL && n < 20; n++) {
        struct state before;
        long live = heap_live();
        state_take(&before, &w);
        heap_fail_nth(n);
        seq = create_sequence(w.engine, 1, 300);
        heap_fail_nth(0);
        if (seq == NULL) {
            CHECK_INT(heap_live(), live);
            check_state(__FILE__, __LINE__, &before, &w);
        }
        state_drop(&before);
    }
    CHECK(seq != NULL);
    world_close(&w);
}

TEST(advice_fork_survives_malloc_failure,
     "(advice) malloc can return NULL; then return NULL, change nothing, leak nothing.") {
    struct world w;
    world_open(&w, 40);
    CHECK(create_sequence(w.engine, 1, 300) != NULL);
    Sequence *seq = NULL;
    for (long n = 1; seq == NULL && n < 20; n++) {
        struct state before;
        long live = heap_live();
        state_take(&before, &w);
        heap_fail_nth(n);
        seq = fork_sequence(w.engine, 1, 2);
        heap_fail_nth(0);
        if (seq == NULL) {
            CHECK_INT(heap_live(), live);
            check_state(__FILE__, __LINE__, &before, &w);
        }
        state_drop(&before);
    }
    CHECK(seq != NULL);
    world_close(&w);
}

TEST(advice_append_survives_malloc_failure,
     "(advice) malloc can return NULL; then return -1 and change nothing.") {
    struct world w;
    struct state before;
    world_open(&w, 40);
    CHECK(create_sequence(w.engine, 1, 256) != NULL);
    state_take(&before, &w);
    heap_fail_nth(1);
    CHECK_INT(append_kv(w.engine, 1, 5), -1);
    heap_fail_nth(0);
    CHECK_STATE(&before, &w);
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    world_close(&w);
}

TEST(advice_length_near_int_max,
     "(advice) initial_kv_len + KV_PER_BLOCK - 1 overflows an int near INT_MAX, which is "
     "undefined.") {
    struct world w;
    struct state before;
    world_open(&w, 40);
    state_take(&before, &w);
    CHECK_NULL(create_sequence(w.engine, 1, INT_MAX));
    CHECK_NULL(create_sequence(w.engine, 1, INT_MAX - 14));
    CHECK_NULL(create_sequence(w.engine, 1, INT_MAX - 15));
    CHECK_STATE(&before, &w);
    world_close(&w);
}

const struct test advice_tests[] = {
    LISTED_ADVICE(advice_init_survives_malloc_failure),
    LISTED_ADVICE(advice_create_survives_malloc_failure),
    LISTED_ADVICE(advice_fork_survives_malloc_failure),
    LISTED_ADVICE(advice_append_survives_malloc_failure),
    LISTED_ADVICE(advice_length_near_int_max),
    END_OF_LIST,
};

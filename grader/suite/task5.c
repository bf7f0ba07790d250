//go:build ignore

/* Task 5: llm_destroy. */
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "state.h"

static void populate(struct world *w) {
    world_open(w, 60);
    CHECK(create_sequence(w->engine, 1, 300) != NULL);
    CHECK(create_sequence(w->engine, 2, 20) != NULL);
    CHECK(fork_sequence(w->engine, 1, 3) != NULL);
    CHECK(create_sequence(w->engine, 4, 40) != NULL);
    CHECK(fork_sequence(w->engine, 3, 5) != NULL);
    CHECK_INT(append_kv(w->engine, 3, 9), 0);
}

TEST(task5_returns_zero, "DO NOT free pool_base_ptr [...]. Return 0.") {
    struct world w;
    world_open(&w, 10);
    CHECK_INT(llm_destroy(w.engine), 0);
    pool_close(&w.pool);
    populate(&w);
    CHECK_INT(llm_destroy(w.engine), 0);
    pool_close(&w.pool);
}

TEST(task5_leaves_the_pool_as_it_is,
     "You may ONLY write to the physical memory during an actual append_kv operation.") {
    struct world w;
    struct state before;
    populate(&w);
    state_take(&before, &w);
    pool_lock(&w.pool);
    CHECK_INT(llm_destroy(w.engine), 0);
    pool_unlock(&w.pool);
    CHECK(memcmp(before.bytes, w.pool.pages, w.pool.pages_size) == 0);
    state_drop(&before);
    pool_close(&w.pool);
}

TEST(task5_does_not_free_the_pool, "DO NOT free pool_base_ptr (the testing framework owns it).") {
    unsigned char *pool = watched_malloc(640);
    CHECK(pool != NULL);
    memset(pool, 0x77, 640);
    LLMEngine *engine = llm_init(pool, 640);
    CHECK(engine != NULL);
    CHECK(create_sequence(engine, 1, 100) != NULL);
    CHECK_INT(llm_destroy(engine), 0);
    for (int i = 0; i < 640; i++) {
        CHECK_INT(pool[i], 0x77);
    }
    free(pool);
}

TEST(task5_frees_engine_and_ref_count, "Free the ref_count array and the engine structure.") {
    struct world w;
    world_open(&w, 10);
    CHECK_INT(heap_live(), 2);
    CHECK_INT(llm_destroy(w.engine), 0);
    CHECK_INT(heap_live(), 0);
    pool_close(&w.pool);
}

TEST(task5_frees_one_sequence, "Safely traverse the list and destroy all remaining sequences.") {
    static const int lengths[] = {1, 257, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct world w;
        world_open(&w, 256);
        CHECK(create_sequence(w.engine, 1, lengths[i]) != NULL);
        CHECK_INT(llm_destroy(w.engine), 0);
        CHECK_INT(heap_live(), 0);
        pool_close(&w.pool);
    }
}

TEST(task5_frees_all_sequences, "Safely traverse the list and destroy all remaining sequences.") {
    for (int n = 2; n < 6; n++) {
        struct world w;
        world_open(&w, 256);
        for (int i = 0; i < n; i++) {
            CHECK(create_sequence(w.engine, i, 20 + 250 * (i == 2)) != NULL);
        }
        CHECK_INT(llm_destroy(w.engine), 0);
        CHECK_INT(heap_live(), 0);
        pool_close(&w.pool);
    }
}

TEST(task5_frees_forks,
     "Memory leaks (e.g., un-freed inner L2 block tables) are strictly forbidden and must "
     "report 0 bytes lost.") {
    struct world w;
    populate(&w);
    CHECK_INT(llm_destroy(w.engine), 0);
    CHECK_INT(heap_live(), 0);
    pool_close(&w.pool);
}

TEST(task5_a_pool_can_be_used_again, "DO NOT free pool_base_ptr (the testing framework owns it).") {
    struct world w;
    populate(&w);
    CHECK_INT(llm_destroy(w.engine), 0);
    w.engine = llm_init(w.pool.at, w.pool.size);
    CHECK(w.engine != NULL);
    CHECK_INT(w.engine->free_local_blocks, 60);
    Sequence *seq = create_sequence(w.engine, 1, 20);
    CHECK(seq != NULL);
    CHECK_INT(seq->block_table[0][0], 0);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

const struct test task5_tests[] = {
    LISTED(task5_returns_zero),
    LISTED(task5_leaves_the_pool_as_it_is),
    LISTED(task5_does_not_free_the_pool),
    LISTED_HEAP(task5_frees_engine_and_ref_count),
    LISTED_HEAP(task5_frees_one_sequence),
    LISTED_HEAP(task5_frees_all_sequences),
    LISTED_HEAP(task5_frees_forks),
    LISTED(task5_a_pool_can_be_used_again),
    END_OF_LIST,
};

//go:build ignore

/* Task 1: llm_init. */
#include <stdlib.h>

#include "heap.h"
#include "state.h"

TEST(task1_refuses_null_pool, "Return NULL if pool_addr == NULL [...].") {
    CHECK_NULL(llm_init(NULL, 640));
    CHECK_NULL(llm_init(NULL, BLOCK_SIZE));
    CHECK_NULL(llm_init(NULL, 0));
}

TEST(task1_refuses_pool_below_one_block, "Return NULL if [...] pool_size < BLOCK_SIZE.") {
    struct pool pool;
    pool_open(&pool, BLOCK_SIZE);
    CHECK_NULL(llm_init(pool.at, 0));
    CHECK_NULL(llm_init(pool.at, 1));
    CHECK_NULL(llm_init(pool.at, KV_PER_BLOCK));
    CHECK_NULL(llm_init(pool.at, BLOCK_SIZE - 1));
    pool_close(&pool);
}

TEST(task1_refusing_allocates_nothing,
     "If any phase fails, return immediately. DO NOT allocate memory (malloc) [...].") {
    static char pool[BLOCK_SIZE];
    CHECK_NULL(llm_init(NULL, 640));
    CHECK_NULL(llm_init(pool, BLOCK_SIZE - 1));
    CHECK_INT(heap_calls(), 0);
}

TEST(task1_accepts_pool_of_one_block,
     "Return NULL if pool_size < BLOCK_SIZE: 64 bytes are not less, they are one block.") {
    struct world w;
    world_open(&w, 1);
    CHECK_INT(w.engine->total_local_blocks, 1);
    CHECK_INT(w.engine->free_local_blocks, 1);
    CHECK(create_sequence(w.engine, 1, KV_PER_BLOCK) != NULL);
    CHECK_INT(w.engine->free_local_blocks, 0);
    world_close(&w);
}

static void expect_blocks(size_t pool_size, int blocks) {
    struct pool pool;
    pool_open(&pool, pool_size);
    LLMEngine *engine = llm_init(pool.at, pool_size);
    CHECK(engine != NULL);
    CHECK_INT(engine->total_local_blocks, blocks);
    CHECK_INT(engine->free_local_blocks, blocks);
    CHECK_INT(llm_destroy(engine), 0);
    pool_close(&pool);
}

TEST(task1_counts_whole_blocks_only, "Calculate total_local_blocks = pool_size / BLOCK_SIZE.") {
    expect_blocks(127, 1);
    expect_blocks(128, 2);
    expect_blocks(129, 2);
    expect_blocks(700, 10);
    expect_blocks(300 * BLOCK_SIZE + 63, 300);
}

TEST(task1_all_blocks_are_free, "Initialize free_local_blocks = total_local_blocks.") {
    struct world w;
    world_open(&w, 37);
    CHECK_INT(w.engine->total_local_blocks, 37);
    CHECK_INT(w.engine->free_local_blocks, w.engine->total_local_blocks);
    world_close(&w);
}

TEST(task1_stores_pool_addr, "Store pool_addr.") {
    struct world w;
    world_open(&w, 3);
    CHECK_PTR(w.engine->pool_base_ptr, w.pool.at);
    world_close(&w);
}

/* Frees memory that is not zero, so that a later malloc returns it. */
static void dirty_the_heap(size_t size) {
    int *dirty[8];
    for (int i = 0; i < 8; i++) {
        dirty[i] = malloc(size);
        for (size_t k = 0; dirty[i] != NULL && k < size / sizeof(int); k++) {
            dirty[i][k] = 77;
        }
    }
    for (int i = 0; i < 8; i++) {
        free(dirty[i]);
    }
}

TEST(task1_ref_counts_start_at_zero,
     "Allocate the ref_count array using calloc (initialized to 0).") {
    for (int blocks = 1; blocks <= 300; blocks += 23) {
        struct world w;
        dirty_the_heap((size_t)blocks * sizeof(int));
        world_open(&w, blocks);
        CHECK(w.engine->ref_count != NULL);
        for (int b = 0; b < blocks; b++) {
            CHECK_INT(w.engine->ref_count[b], 0);
        }
        world_close(&w);
    }
}

TEST(task1_ref_count_has_one_count_per_block,
     "a global array (size equal to total_local_blocks, each ref_count represent a reference "
     "counting of one individual block)") {
    struct world w;
    world_open(&w, 700);
    CHECK(heap_size_of(w.engine->ref_count) >= 700 * sizeof(int));
    world_close(&w);
}

TEST(task1_engine_and_ref_count_are_allocated,
     "Allocate LLMEngine. [...] Allocate the ref_count array using calloc.") {
    struct world w;
    world_open(&w, 10);
    CHECK(heap_size_of(w.engine) >= sizeof(LLMEngine));
    CHECK(heap_size_of(w.engine->ref_count) >= 10 * sizeof(int));
    CHECK_INT(heap_live(), 2);
    world_close(&w);
}

TEST(task1_empty_list_points_to_itself,
     "For an empty list, the dummy head's prev and next pointers MUST point to itself.") {
    struct world w;
    world_open(&w, 10);
    CHECK_PTR(w.engine->active_seqs.next, &w.engine->active_seqs);
    CHECK_PTR(w.engine->active_seqs.prev, &w.engine->active_seqs);
    world_close(&w);
}

TEST(task1_does_not_write_the_pool,
     "You may ONLY write to the physical memory during an actual append_kv operation.") {
    struct pool pool;
    pool_open(&pool, 700);
    pool_lock(&pool);
    LLMEngine *engine = llm_init(pool.at, 700);
    CHECK(engine != NULL);
    pool_unlock(&pool);
    for (size_t i = 0; i < pool.pages_size; i++) {
        CHECK_INT(pool.pages[i], pool_pattern(i));
    }
    CHECK_INT(llm_destroy(engine), 0);
    pool_close(&pool);
}

TEST(task1_a_second_engine_is_another_one, "Allocate LLMEngine.") {
    struct world a, b;
    world_open(&a, 5);
    world_open(&b, 9);
    CHECK(a.engine != b.engine);
    CHECK(a.engine->ref_count != b.engine->ref_count);
    CHECK_INT(a.engine->total_local_blocks, 5);
    CHECK_INT(b.engine->total_local_blocks, 9);
    CHECK_PTR(a.engine->pool_base_ptr, a.pool.at);
    CHECK_PTR(a.engine->active_seqs.next, &a.engine->active_seqs);
    world_close(&a);
    world_close(&b);
}

TEST(task1_uses_no_byte_behind_the_last_whole_block,
     "Calculate total_local_blocks = pool_size / BLOCK_SIZE.") {
    struct world w;
    pool_open(&w.pool, 700);
    w.engine = llm_init(w.pool.at, 700);
    CHECK(w.engine != NULL);
    Sequence *seq = create_sequence(w.engine, 1, 1);
    CHECK(seq != NULL);
    append_many(&w, seq, 159);
    CHECK_INT(append_kv(w.engine, 1, 1), -1);
    for (size_t i = state_offset(&w, 10); i < w.pool.pages_size; i++) {
        CHECK_INT(w.pool.pages[i], pool_pattern(i));
    }
    world_close(&w);
}

const struct test task1_tests[] = {
    LISTED(task1_refuses_null_pool),
    LISTED(task1_refuses_pool_below_one_block),
    LISTED_HEAP(task1_refusing_allocates_nothing),
    LISTED(task1_accepts_pool_of_one_block),
    LISTED(task1_counts_whole_blocks_only),
    LISTED(task1_all_blocks_are_free),
    LISTED(task1_stores_pool_addr),
    LISTED(task1_ref_counts_start_at_zero),
    LISTED_HEAP(task1_ref_count_has_one_count_per_block),
    LISTED_HEAP(task1_engine_and_ref_count_are_allocated),
    LISTED(task1_empty_list_points_to_itself),
    LISTED(task1_does_not_write_the_pool),
    LISTED(task1_a_second_engine_is_another_one),
    LISTED(task1_uses_no_byte_behind_the_last_whole_block),
    END_OF_LIST,
};

//go:build ignore

/* The Global Constraints, and what holds over many calls. */
#include <string.h>

#include "heap.h"
#include "state.h"

/* ---- pointer safety ---- */

TEST(null_engine_create_returns_null,
     "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If "
     "true, return NULL or -1.") {
    CHECK_NULL(create_sequence(NULL, 1, 10));
    CHECK_NULL(create_sequence(NULL, 1, 0));
}

TEST(null_engine_fork_returns_null,
     "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If "
     "true, return NULL or -1.") {
    CHECK_NULL(fork_sequence(NULL, 1, 2));
    CHECK_NULL(fork_sequence(NULL, 1, 1));
}

TEST(null_engine_append_returns_minus_one,
     "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If "
     "true, return NULL or -1.") {
    CHECK_INT(append_kv(NULL, 1, 5), -1);
}

TEST(null_engine_free_returns_minus_one,
     "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If "
     "true, return NULL or -1.") {
    CHECK_INT(free_sequence(NULL, 1), -1);
}

TEST(null_engine_destroy_returns_minus_one,
     "Any API receiving LLMEngine *engine MUST check if engine == NULL on its first line. If "
     "true, return NULL or -1.") {
    CHECK_INT(llm_destroy(NULL), -1);
}

TEST(null_engine_allocates_nothing,
     "If any phase fails, return immediately. DO NOT allocate memory (malloc) [...].") {
    CHECK_NULL(create_sequence(NULL, 1, 10));
    CHECK_NULL(fork_sequence(NULL, 1, 2));
    CHECK_INT(append_kv(NULL, 1, 5), -1);
    CHECK_INT(free_sequence(NULL, 1), -1);
    CHECK_INT(llm_destroy(NULL), -1);
    CHECK_INT(heap_calls(), 0);
}

/* ---- first fit ---- */

TEST(first_fit_starts_at_block_0,
     "use a for loop from 0 to total_local_blocks - 1 and pick the very first block where "
     "ref_count == 0.") {
    struct world w;
    world_open(&w, 10);
    for (int i = 0; i < 10; i++) {
        Sequence *seq = create_sequence(w.engine, i, 1);
        CHECK(seq != NULL);
        CHECK_INT(seq->block_table[0][0], i);
    }
    world_close(&w);
}

TEST(first_fit_reaches_the_last_block, "use a for loop from 0 to total_local_blocks - 1") {
    for (int blocks = 1; blocks < 80; blocks += 7) {
        struct world w;
        world_open(&w, blocks);
        Sequence *seq = create_sequence(w.engine, 1, blocks * KV_PER_BLOCK);
        CHECK(seq != NULL);
        int last = blocks - 1;
        CHECK_INT(seq->block_table[last / L2_PT_SIZE][last % L2_PT_SIZE], last);
        world_close(&w);
    }
}

TEST(first_fit_reuses_the_lowest_freed_block, "pick the very first block where ref_count == 0.") {
    struct world w;
    world_open(&w, 10);
    for (int i = 0; i < 8; i++) {
        CHECK(create_sequence(w.engine, i, 1) != NULL);
    }
    CHECK_INT(free_sequence(w.engine, 5), 0);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(create_sequence(w.engine, 20, 1)->block_table[0][0], 2);
    CHECK_INT(create_sequence(w.engine, 21, 1)->block_table[0][0], 5);
    CHECK_INT(create_sequence(w.engine, 22, 1)->block_table[0][0], 8);
    world_close(&w);
}

TEST(first_fit_fills_scattered_holes,
     "the allocator simply finds any free blocks in the pool and assigns them [...] "
     "physically, the blocks are scattered everywhere.") {
    static const int expected[] = {0, 3, 4, 7, 8, 9};
    struct world w;
    world_open(&w, 12);
    for (int i = 0; i < 8; i++) {
        CHECK(create_sequence(w.engine, i, 16) != NULL);
    }
    CHECK_INT(free_sequence(w.engine, 3), 0);
    CHECK_INT(free_sequence(w.engine, 7), 0);
    CHECK_INT(free_sequence(w.engine, 0), 0);
    CHECK_INT(free_sequence(w.engine, 4), 0);
    Sequence *seq = create_sequence(w.engine, 20, 6 * 16);
    CHECK(seq != NULL);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(seq->block_table[0][i], expected[i]);
    }
    world_close(&w);
}

TEST(first_fit_holds_for_append,
     "When you need a new physical block, you MUST [...] pick the very first block where "
     "ref_count == 0.") {
    struct world w;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 1, 32) != NULL);
    Sequence *seq = create_sequence(w.engine, 2, 32);
    CHECK(create_sequence(w.engine, 3, 16) != NULL);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    append_many(&w, seq, 48);
    CHECK_INT(seq->block_table[0][2], 0);
    CHECK_INT(seq->block_table[0][3], 1);
    CHECK_INT(seq->block_table[0][4], 5);
    world_close(&w);
}

TEST(first_fit_holds_for_cow,
     "When you need a new physical block, you MUST [...] pick the very first block where "
     "ref_count == 0.") {
    struct world w;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 1, 16) != NULL);
    CHECK(create_sequence(w.engine, 2, 16) != NULL);
    CHECK(create_sequence(w.engine, 3, 20) != NULL);
    Sequence *child = fork_sequence(w.engine, 3, 4);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(append_kv(w.engine, 4, 5), 0);
    CHECK_INT(child->block_table[0][1], 1);
    CHECK_INT(append_kv(w.engine, 4, 5), 0);
    CHECK_INT(child->block_table[0][1], 1);
    world_close(&w);
}

/* ---- no premature memory modification ---- */

TEST(create_does_not_write_the_pool,
     "You are strictly forbidden to call memset or zero out a physical block when you allocate "
     "it during create_sequence.") {
    struct world w;
    world_open(&w, 300);
    pool_lock(&w.pool);
    CHECK(create_sequence(w.engine, 1, 1) != NULL);
    CHECK(create_sequence(w.engine, 2, 4096) != NULL);
    CHECK(create_sequence(w.engine, 3, 33) != NULL);
    CHECK_NULL(create_sequence(w.engine, 4, 4096));
    pool_unlock(&w.pool);
    for (size_t i = 0; i < w.pool.pages_size; i++) {
        CHECK_INT(w.pool.pages[i], pool_pattern(i));
    }
    world_close(&w);
}

TEST(only_append_writes_the_pool,
     "You may ONLY write to the physical memory during an actual append_kv operation.") {
    struct world w;
    world_open(&w, 20);
    pool_lock(&w.pool);
    CHECK(create_sequence(w.engine, 1, 40) != NULL);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    pool_unlock(&w.pool);
    CHECK_INT(append_kv(w.engine, 2, 5), 0);
    pool_lock(&w.pool);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK(create_sequence(w.engine, 3, 40) != NULL);
    CHECK_INT(llm_destroy(w.engine), 0);
    pool_unlock(&w.pool);
    pool_close(&w.pool);
}

/* ---- free block consistency ---- */

TEST(free_count_is_the_number_of_free_blocks,
     "It must be decremented when a new block is assigned, and incremented when a block's "
     "ref_count drops to 0.") {
    struct world w;
    world_open(&w, 30);
    Sequence *one = create_sequence(w.engine, 1, 100);
    CHECK_CONSERVED(&w);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    CHECK_CONSERVED(&w);
    append_many(&w, one, 40);
    CHECK_CONSERVED(&w);
    CHECK(fork_sequence(w.engine, 2, 3) != NULL);
    CHECK_INT(append_kv(w.engine, 2, 5), 0);
    CHECK_CONSERVED(&w);
    CHECK_INT(append_kv(w.engine, 3, 5), 0);
    CHECK_CONSERVED(&w);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_CONSERVED(&w);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_CONSERVED(&w);
    CHECK_INT(free_sequence(w.engine, 3), 0);
    CHECK_INT(w.engine->free_local_blocks, 30);
    world_close(&w);
}

TEST(free_count_survives_many_rounds,
     "The variable engine->free_local_blocks tracks available physical blocks.") {
    struct world w;
    world_open(&w, 20);
    for (int round = 0; round < 50; round++) {
        int a = 3 * round, b = a + 1, c = a + 2;
        Sequence *seq = create_sequence(w.engine, a, 1 + round);
        CHECK(seq != NULL);
        CHECK(fork_sequence(w.engine, a, b) != NULL);
        CHECK(fork_sequence(w.engine, b, c) != NULL);
        append_many(&w, seq, 20);
        append_many(&w, nth_sequence(w.engine, 2), 3);
        CHECK_CONSERVED(&w);
        CHECK_INT(free_sequence(w.engine, round % 2 ? a : b), 0);
        CHECK_INT(free_sequence(w.engine, round % 2 ? b : a), 0);
        CHECK_INT(free_sequence(w.engine, c), 0);
        CHECK_INT(w.engine->free_local_blocks, 20);
    }
    world_close(&w);
}

/* ---- order of validation: what is visible of it ---- */

TEST(invalid_length_and_existing_id_change_nothing,
     "You must follow this exact order [...]. Contract: If any phase fails, return "
     "immediately.") {
    struct world w;
    struct state before;
    world_open(&w, 4);
    CHECK(create_sequence(w.engine, 1, 64) != NULL);
    state_take(&before, &w);
    CHECK_NULL(create_sequence(w.engine, 1, 0));
    CHECK_NULL(create_sequence(w.engine, 1, 5000));
    CHECK_NULL(create_sequence(w.engine, 2, 5000));
    CHECK_NULL(create_sequence(w.engine, 2, -5));
    CHECK_STATE(&before, &w);
    world_close(&w);
}

/* ---- many sequences ---- */

TEST(three_hundred_live_sequences,
     "We use a Linux-kernel style intrusive linked list to track active sequences.") {
    struct world w;
    struct state s;
    world_open(&w, 400);
    for (int i = 0; i < 300; i++) {
        CHECK(create_sequence(w.engine, i * 7 - 900, 1) != NULL);
    }
    for (int i = 299; i >= 0; i--) {
        CHECK_INT(append_kv(w.engine, i * 7 - 900, i), 0);
    }
    CHECK_NULL(create_sequence(w.engine, 199 * 7 - 900, 1));
    state_take(&s, &w);
    CHECK_INT(s.seqs, 300);
    for (int i = 0; i < 300; i++) {
        CHECK_INT(s.seq[i].seq_id, i * 7 - 900);
        CHECK_INT(record_at(&w, s.seq[i].at, 1), i);
    }
    state_drop(&s);
    for (int i = 0; i < 300; i += 2) {
        CHECK_INT(free_sequence(w.engine, i * 7 - 900), 0);
    }
    CHECK_INT(w.engine->free_local_blocks, 250);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(two_thousand_forks_and_back,
     "Increment the global ref_count for every valid physical block inherited by the child.") {
    enum { FORKS = 2000 };
    struct world w;
    world_open(&w, 2);
    CHECK(create_sequence(w.engine, 0, 5) != NULL);
    for (int i = 1; i <= FORKS; i++) {
        CHECK(fork_sequence(w.engine, i - 1, i) != NULL);
    }
    CHECK_INT(w.engine->ref_count[0], FORKS + 1);
    CHECK_INT(w.engine->free_local_blocks, 1);
    CHECK_INT(append_kv(w.engine, FORKS / 2, 5), 0);
    CHECK_INT(w.engine->ref_count[0], FORKS);
    CHECK_INT(append_kv(w.engine, FORKS / 2 + 1, 5), -1);
    for (int i = FORKS; i > 0; i--) {
        CHECK_INT(free_sequence(w.engine, i), 0);
    }
    CHECK_INT(w.engine->ref_count[0], 1);
    CHECK_INT(w.engine->free_local_blocks, 1);
    world_close(&w);
}

/* ---- two engines ---- */

TEST(two_engines_in_turn,
     "set up the management structures (the LLMEngine): all state is in there.") {
    struct world a, b;
    world_open(&a, 20);
    world_open(&b, 30);
    Sequence *in_b = create_sequence(b.engine, 1, 33);
    Sequence *in_a = create_sequence(a.engine, 1, 1);
    CHECK(in_a != NULL && in_b != NULL);
    CHECK_INT(in_a->block_table[0][0], 0);
    CHECK_INT(in_b->block_table[0][0], 0);
    CHECK(create_sequence(a.engine, 2, 16) != NULL);
    CHECK_INT(append_kv(b.engine, 2, 5), -1);
    for (int i = 0; i < 40; i++) {
        CHECK_INT(append_kv(a.engine, 1, value_of(1, i)), 0);
        CHECK_INT(append_kv(b.engine, 1, value_of(2, i)), 0);
    }
    for (int i = 0; i < 40; i++) {
        CHECK_INT(record_at(&a, in_a, 1 + i), value_of(1, i));
        CHECK_INT(record_at(&b, in_b, 33 + i), value_of(2, i));
    }
    CHECK_CONSERVED(&a);
    CHECK_CONSERVED(&b);
    CHECK_INT(free_sequence(a.engine, 1), 0);
    CHECK_INT(append_kv(b.engine, 1, 5), 0);
    world_close(&a);
    CHECK_INT(append_kv(b.engine, 1, 5), 0);
    CHECK_CONSERVED(&b);
    world_close(&b);
}

TEST(a_new_engine_starts_from_scratch,
     "Initialize free_local_blocks = total_local_blocks. [...] seq_id exists or is unique (in "
     "this engine).") {
    for (int round = 0; round < 3; round++) {
        struct world w;
        world_open(&w, 20);
        Sequence *seq = create_sequence(w.engine, 1, 20);
        CHECK(seq != NULL);
        CHECK_INT(seq->block_table[0][0], 0);
        append_many(&w, seq, 20);
        CHECK_INT(append_kv(w.engine, 2, 1), -1);
        CHECK(fork_sequence(w.engine, 1, 2) != NULL);
        CHECK_CONSERVED(&w);
        world_close(&w);
    }
}

const struct test constraints_tests[] = {
    LISTED(null_engine_create_returns_null),
    LISTED(null_engine_fork_returns_null),
    LISTED(null_engine_append_returns_minus_one),
    LISTED(null_engine_free_returns_minus_one),
    LISTED(null_engine_destroy_returns_minus_one),
    LISTED_HEAP(null_engine_allocates_nothing),
    LISTED(first_fit_starts_at_block_0),
    LISTED(first_fit_reaches_the_last_block),
    LISTED(first_fit_reuses_the_lowest_freed_block),
    LISTED(first_fit_fills_scattered_holes),
    LISTED(first_fit_holds_for_append),
    LISTED(first_fit_holds_for_cow),
    LISTED(create_does_not_write_the_pool),
    LISTED(only_append_writes_the_pool),
    LISTED(free_count_is_the_number_of_free_blocks),
    LISTED(free_count_survives_many_rounds),
    LISTED(invalid_length_and_existing_id_change_nothing),
    LISTED(three_hundred_live_sequences),
    LISTED(two_thousand_forks_and_back),
    LISTED(two_engines_in_turn),
    LISTED(a_new_engine_starts_from_scratch),
    END_OF_LIST,
};

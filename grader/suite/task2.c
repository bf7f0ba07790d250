//go:build ignore

/* Task 2: create_sequence and free_sequence. */
#include <limits.h>
#include <string.h>

#include "heap.h"
#include "state.h"

/* ---- create_sequence ---- */

static Sequence *create(struct world *w, int seq_id, int length) {
    Sequence *seq = create_sequence(w->engine, seq_id, length);
    if (seq == NULL) {
        check_fail(__FILE__, __LINE__, "create_sequence(engine, %d, %d) returned NULL", seq_id, length);
    }
    return seq;
}

static void refuses(struct world *w, int seq_id, int length) {
    struct state before;
    state_take(&before, w);
    CHECK_NULL(create_sequence(w->engine, seq_id, length));
    CHECK_STATE(&before, w);
}

TEST(task2_refuses_length_zero, "Phase 1: Return NULL if initial_kv_len <= 0.") {
    struct world w;
    world_open(&w, 10);
    refuses(&w, 5, 0);
    create(&w, 5, 1);
    refuses(&w, 6, 0);
    world_close(&w);
}

TEST(task2_refuses_negative_length, "Phase 1: Return NULL if initial_kv_len <= 0.") {
    struct world w;
    world_open(&w, 10);
    refuses(&w, 5, -1);
    refuses(&w, 5, -16);
    refuses(&w, 5, -17);
    refuses(&w, 5, INT_MIN);
    world_close(&w);
}

TEST(task2_refuses_existing_id, "Phase 1: Return NULL if [...] seq_id already exists.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 10);
    create(&w, 2, 10);
    create(&w, 3, 10);
    refuses(&w, 1, 10);
    refuses(&w, 2, 10);
    refuses(&w, 3, 10);
    world_close(&w);
}

TEST(task2_refuses_id_of_a_fork, "Phase 1: Return NULL if [...] seq_id already exists.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 10);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    refuses(&w, 2, 1);
    world_close(&w);
}

TEST(task2_accepts_any_int_as_id,
     "int seq_id; // Unique identifier for the sequence (no int is excluded)") {
    static const int ids[] = {0, -1, -3, 1, INT_MAX, INT_MIN, INT_MIN + 1, 1 << 16};
    struct world w;
    world_open(&w, 10);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        CHECK_INT(create(&w, ids[i], 1)->seq_id, ids[i]);
    }
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        CHECK_NULL(create_sequence(w.engine, ids[i], 1));
        CHECK_INT(append_kv(w.engine, ids[i], 5), 0);
        CHECK_INT(nth_sequence(w.engine, (int)i)->kv_count, 2);
    }
    CHECK_INT(free_sequence(w.engine, -1), 0);
    CHECK_INT(free_sequence(w.engine, -1), -1);
    CHECK_NULL(fork_sequence(w.engine, -1, 7));
    world_close(&w);
}

TEST(task2_accepts_id_of_a_freed_sequence,
     "Return NULL if [...] seq_id already exists: after free_sequence it does not.") {
    struct world w;
    world_open(&w, 10);
    for (int i = 0; i < 3; i++) {
        create(&w, 1, 40);
        create(&w, 2, 40);
        CHECK_INT(free_sequence(w.engine, 1), 0);
        CHECK_INT(free_sequence(w.engine, 2), 0);
    }
    world_close(&w);
}

static void expect_need(int length, int blocks) {
    struct world w;
    world_open(&w, 256);
    create(&w, 1, length);
    CHECK_INT(w.engine->total_local_blocks - w.engine->free_local_blocks, blocks);
    world_close(&w);
}

TEST(task2_needs_the_ceiling_of_length_by_16,
     "required blocks using ceiling division: (initial_kv_len + KV_PER_BLOCK - 1) / "
     "KV_PER_BLOCK") {
    expect_need(1, 1);
    expect_need(15, 1);
    expect_need(16, 1);
    expect_need(17, 2);
    expect_need(32, 2);
    expect_need(33, 3);
    expect_need(256, 16);
    expect_need(257, 17);
    expect_need(613, 39);
    expect_need(4080, 255);
    expect_need(4081, 256);
}

TEST(task2_accepts_4096_records,
     "If required blocks exceed 256 [...] return NULL: 4095 and 4096 records need 256.") {
    for (int length = 4095; length <= 4096; length++) {
        struct world w;
        world_open(&w, 300);
        create(&w, 1, length);
        CHECK_INT(w.engine->free_local_blocks, 300 - 256);
        CHECK_CONSERVED(&w);
        world_close(&w);
    }
}

TEST(task2_refuses_4097_records, "If required blocks exceed 256 [...] return NULL immediately.") {
    struct world w;
    world_open(&w, 5000);
    refuses(&w, 1, 4097);
    refuses(&w, 1, 4112);
    refuses(&w, 1, 4113);
    refuses(&w, 1, 65536);
    refuses(&w, 1, 1000000);
    world_close(&w);
}

TEST(task2_refusing_too_many_records_allocates_nothing,
     "DO NOT allocate memory (malloc) or modify block tables if the operation will eventually "
     "fail.") {
    struct world w;
    world_open(&w, 300);
    long calls = heap_calls();
    CHECK_NULL(create_sequence(w.engine, 1, 4097));
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task2_oom_returns_null,
     "If required blocks [...] exceed free_local_blocks, return NULL immediately.") {
    struct world w;
    world_open(&w, 10);
    CHECK_NULL(create_sequence(w.engine, 5, 161));
    CHECK_NULL(create_sequence(w.engine, 5, 200));
    create(&w, 6, 100);
    CHECK_NULL(create_sequence(w.engine, 5, 49));
    create(&w, 7, 48);
    CHECK_NULL(create_sequence(w.engine, 5, 1));
    world_close(&w);
}

TEST(task2_oom_leaves_nothing, "Contract: If any phase fails, return immediately.") {
    struct world w;
    world_open(&w, 10);
    refuses(&w, 5, 161);
    create(&w, 6, 100);
    refuses(&w, 5, 200);
    refuses(&w, 5, 49);
    create(&w, 7, 48);
    refuses(&w, 5, 1);
    world_close(&w);
}

TEST(task2_oom_allocates_nothing,
     "DO NOT allocate memory (malloc) [...] if the operation will eventually fail due to "
     "Out-Of-Memory (OOM).") {
    struct world w;
    world_open(&w, 10);
    create(&w, 6, 100);
    long calls = heap_calls();
    CHECK_NULL(create_sequence(w.engine, 5, 200));
    CHECK_NULL(create_sequence(w.engine, 5, 49));
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task2_invalid_arguments_allocate_nothing,
     "If any phase fails, return immediately. DO NOT allocate memory (malloc) [...].") {
    struct world w;
    world_open(&w, 10);
    create(&w, 6, 100);
    long calls = heap_calls();
    CHECK_NULL(create_sequence(w.engine, 5, 0));
    CHECK_NULL(create_sequence(w.engine, 5, -1));
    CHECK_NULL(create_sequence(w.engine, 6, 1));
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task2_may_take_the_last_free_block,
     "If required blocks [...] exceed free_local_blocks, return NULL: equal does not exceed.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 160);
    CHECK_INT(w.engine->free_local_blocks, 0);
    CHECK_INT(w.engine->ref_count[9], 1);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    create(&w, 1, 144);
    create(&w, 2, 1);
    CHECK_INT(w.engine->free_local_blocks, 0);
    world_close(&w);
}

TEST(task2_unneeded_l1_entries_are_null,
     "Allocate Sequence and its L1 block table (an array of 16 pointers). Initialize all 16 "
     "pointers to NULL.") {
    static const int lengths[] = {1, 16, 17, 256, 257, 512, 513, 3840, 3841, 4096};
    static const int tables[] = {1, 1, 1, 1, 2, 2, 3, 15, 16, 16};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct world w;
        world_open(&w, 256);
        Sequence *seq = create(&w, 1, lengths[i]);
        for (int l1 = 0; l1 < L1_PT_SIZE; l1++) {
            CHECK_INT(seq->block_table[l1] != NULL, l1 < tables[i]);
        }
        world_close(&w);
    }
}

TEST(task2_unused_l2_entries_are_minus_one,
     "If an L2 block table is needed, malloc it (an array of 16 ints) and initialize all 16 "
     "entries to -1.") {
    static const int blocks[] = {1, 2, 3, 15, 17, 31, 200, 255};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        struct world w;
        world_open(&w, 256);
        Sequence *seq = create(&w, 1, blocks[i] * KV_PER_BLOCK);
        int last = (blocks[i] - 1) / L2_PT_SIZE;
        for (int l2 = (blocks[i] - 1) % L2_PT_SIZE + 1; l2 < L2_PT_SIZE; l2++) {
            CHECK_INT(seq->block_table[last][l2], -1);
        }
        world_close(&w);
    }
}

TEST(task2_maps_blocks_in_order,
     "Allocate a free physical block (First-Fit), map its ID into the L2 table.") {
    struct world w;
    world_open(&w, 300);
    Sequence *one = create(&w, 1, 33);
    Sequence *two = create(&w, 2, 4096);
    for (int logical = 0; logical < 3; logical++) {
        CHECK_INT(one->block_table[0][logical], logical);
    }
    for (int logical = 0; logical < MAX_LOGICAL_BLOCKS; logical++) {
        CHECK_INT(two->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE], 3 + logical);
    }
    world_close(&w);
}

TEST(task2_seventeenth_block_is_in_the_second_table,
     "L2 Block Table (L2_PT_SIZE = 16): An array of 16 integers. It stores the actual Physical "
     "Block ID mapping.") {
    struct world w;
    world_open(&w, 40);
    Sequence *seq = create(&w, 1, 257);
    CHECK_INT(seq->block_table[0][15], 15);
    CHECK(seq->block_table[1] != NULL);
    CHECK_INT(seq->block_table[1][0], 16);
    CHECK_INT(seq->block_table[1][1], -1);
    CHECK_NULL(seq->block_table[2]);
    world_close(&w);
}

TEST(task2_sets_ref_count_to_one, "set its ref_count to 1") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 33);
    create(&w, 2, 16);
    for (int b = 0; b < 10; b++) {
        CHECK_INT(w.engine->ref_count[b], b < 4 ? 1 : 0);
    }
    world_close(&w);
}

TEST(task2_decrements_free_local_blocks, "and decrement free_local_blocks.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 1);
    CHECK_INT(w.engine->free_local_blocks, 9);
    create(&w, 2, 48);
    CHECK_INT(w.engine->free_local_blocks, 6);
    CHECK_INT(w.engine->total_local_blocks, 10);
    world_close(&w);
}

TEST(task2_sets_kv_count, "Set seq->kv_count = initial_kv_len.") {
    struct world w;
    world_open(&w, 300);
    CHECK_INT(create(&w, 1, 1)->kv_count, 1);
    CHECK_INT(create(&w, 2, 16)->kv_count, 16);
    CHECK_INT(create(&w, 3, 257)->kv_count, 257);
    CHECK_INT(create(&w, 4, 3001)->kv_count, 3001);
    world_close(&w);
}

TEST(task2_stores_seq_id, "int seq_id; // Unique identifier for the sequence") {
    struct world w;
    world_open(&w, 10);
    CHECK_INT(create(&w, 42, 1)->seq_id, 42);
    CHECK_INT(create(&w, -42, 1)->seq_id, -42);
    world_close(&w);
}

TEST(task2_appends_to_the_tail,
     "append the sequence to the tail of active_seqs (which is head->prev), and return it.") {
    struct world w;
    struct state s;
    world_open(&w, 10);
    for (int i = 0; i < 5; i++) {
        Sequence *seq = create(&w, 10 - i, 1);
        CHECK_PTR(w.engine->active_seqs.prev, &seq->node);
        CHECK_PTR(seq->node.next, &w.engine->active_seqs);
        state_take(&s, &w);
        CHECK_INT(s.seqs, i + 1);
        CHECK_INT(s.seq[i].seq_id, 10 - i);
        CHECK_INT(s.seq[0].seq_id, 10);
        state_drop(&s);
    }
    world_close(&w);
}

TEST(task2_create_leaves_others_alone, "Iteratively map the required blocks (of this sequence).") {
    struct world w;
    world_open(&w, 30);
    create(&w, 1, 20);
    create(&w, 2, 300);
    struct state s;
    state_take(&s, &w);
    Sequence *seq = create(&w, 3, 40);
    s.free_local_blocks -= 3;
    for (int i = 0; i < 3; i++) {
        s.ref_count[21 + i] = 1;
    }
    s.seqs = 3;
    memset(&s.seq[2], -1, sizeof s.seq[2]);
    memset(s.seq[2].l2, 0, sizeof s.seq[2].l2);
    s.seq[2].at = seq;
    s.seq[2].seq_id = 3;
    s.seq[2].kv_count = 40;
    s.seq[2].block_table = seq->block_table;
    s.seq[2].l2[0] = seq->block_table[0];
    for (int i = 0; i < 3; i++) {
        s.seq[2].entry[0][i] = 21 + i;
    }
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task2_every_table_is_an_allocation,
     "Allocate Sequence and its L1 block table. [...] If an L2 block table is needed, malloc "
     "it.") {
    struct world w;
    world_open(&w, 40);
    long live = heap_live();
    Sequence *seq = create(&w, 1, 257);
    CHECK_INT(heap_live() - live, 4);
    CHECK(heap_size_of(seq) >= sizeof(Sequence));
    CHECK(heap_size_of(seq->block_table) >= L1_PT_SIZE * sizeof(int *));
    CHECK(heap_size_of(seq->block_table[0]) >= L2_PT_SIZE * sizeof(int));
    CHECK(heap_size_of(seq->block_table[1]) >= L2_PT_SIZE * sizeof(int));
    CHECK(seq->block_table[0] != seq->block_table[1]);
    world_close(&w);
}

/* ---- free_sequence ---- */

TEST(task2_free_returns_zero, "Return 0.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 7, 1);
    create(&w, 0, 1);
    CHECK_INT(free_sequence(w.engine, 7), 0);
    CHECK_INT(free_sequence(w.engine, 0), 0);
    world_close(&w);
}

TEST(task2_free_refuses_unknown_id, "Return -1 if not found.") {
    struct world w;
    struct state before;
    world_open(&w, 10);
    CHECK_INT(free_sequence(w.engine, 1), -1);
    create(&w, 1, 20);
    create(&w, 2, 20);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    state_take(&before, &w);
    CHECK_INT(free_sequence(w.engine, 1), -1);
    CHECK_INT(free_sequence(w.engine, 0), -1);
    CHECK_INT(free_sequence(w.engine, -2), -1);
    CHECK_STATE(&before, &w);
    world_close(&w);
}

static void free_of_three(int victim) {
    struct world w;
    struct state s;
    world_open(&w, 10);
    create(&w, 1, 20);
    create(&w, 2, 20);
    create(&w, 3, 20);
    state_take(&s, &w);
    CHECK_INT(free_sequence(w.engine, victim), 0);
    s.free_local_blocks += 2;
    s.ref_count[2 * victim - 2] = s.ref_count[2 * victim - 1] = 0;
    s.seqs = 2;
    for (int i = victim - 1; i < 2; i++) {
        s.seq[i] = s.seq[i + 1];
    }
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task2_free_detaches_the_first,
     "Find and detach the target sequence from the list.") {
    free_of_three(1);
}
TEST(task2_free_detaches_one_in_the_middle,
     "Find and detach the target sequence from the list.") {
    free_of_three(2);
}
TEST(task2_free_detaches_the_last,
     "Find and detach the target sequence from the list.") {
    free_of_three(3);
}

TEST(task2_free_of_the_only_one_empties_the_list,
     "For an empty list, the dummy head's prev and next pointers MUST point to itself.") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 20);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_PTR(w.engine->active_seqs.next, &w.engine->active_seqs);
    CHECK_PTR(w.engine->active_seqs.prev, &w.engine->active_seqs);
    world_close(&w);
}

TEST(task2_free_releases_every_block,
     "For every mapped physical block (!= -1), decrement its ref_count.") {
    static const int lengths[] = {1, 16, 17, 240, 241, 256, 257, 3840, 3841, 4096};
    struct world w;
    world_open(&w, 260);
    create(&w, 1, 50);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        create(&w, 2, lengths[i]);
        CHECK_INT(free_sequence(w.engine, 2), 0);
        for (int b = 4; b < 260; b++) {
            CHECK_INT(w.engine->ref_count[b], 0);
        }
    }
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task2_free_increments_free_local_blocks,
     "If a block's count becomes 0, increment free_local_blocks.") {
    struct world w;
    world_open(&w, 260);
    create(&w, 1, 40);
    create(&w, 2, 4096);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(w.engine->free_local_blocks, 257);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_INT(w.engine->free_local_blocks, 260);
    world_close(&w);
}

TEST(task2_free_keeps_shared_blocks,
     "decrement its ref_count. If a block's count becomes 0, increment free_local_blocks (and "
     "only then).") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 40);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    CHECK(fork_sequence(w.engine, 1, 3) != NULL);
    for (int left = 2; left >= 0; left--) {
        CHECK_INT(free_sequence(w.engine, 3 - left), 0);
        CHECK_INT(w.engine->ref_count[0], left);
        CHECK_INT(w.engine->ref_count[2], left);
        CHECK_INT(w.engine->free_local_blocks, left == 0 ? 10 : 7);
        CHECK_CONSERVED(&w);
    }
    world_close(&w);
}

TEST(task2_free_does_not_write_the_pool,
     "You may ONLY write to the physical memory during an actual append_kv operation.") {
    struct world w;
    struct state before;
    world_open(&w, 40);
    append_many(&w, create(&w, 1, 300), 20);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    state_take(&before, &w);
    pool_lock(&w.pool);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    pool_unlock(&w.pool);
    CHECK(memcmp(before.bytes, w.pool.pages, w.pool.pages_size) == 0);
    state_drop(&before);
    world_close(&w);
}

TEST(task2_free_frees_every_table,
     "Free all allocated L2 arrays, the L1 array, and the sequence itself.") {
    static const int lengths[] = {1, 256, 257, 3840, 4096};
    struct world w;
    world_open(&w, 260);
    long live = heap_live();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        create(&w, 1, lengths[i]);
        CHECK_INT(free_sequence(w.engine, 1), 0);
        CHECK_INT(heap_live(), live);
    }
    world_close(&w);
}

TEST(task2_free_frees_tables_that_append_made,
     "Free all allocated L2 arrays, the L1 array, and the sequence itself.") {
    struct world w;
    world_open(&w, 40);
    long live = heap_live();
    append_many(&w, create(&w, 1, 1), 300);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_INT(heap_live(), live);
    world_close(&w);
}

TEST(task2_free_of_unknown_id_allocates_nothing,
     "If any phase fails, return immediately. DO NOT allocate memory (malloc) [...].") {
    struct world w;
    world_open(&w, 10);
    create(&w, 1, 1);
    long calls = heap_calls();
    CHECK_INT(free_sequence(w.engine, 9), -1);
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

const struct test task2_tests[] = {
    LISTED(task2_refuses_length_zero),
    LISTED(task2_refuses_negative_length),
    LISTED(task2_refuses_existing_id),
    LISTED(task2_refuses_id_of_a_fork),
    LISTED(task2_accepts_any_int_as_id),
    LISTED(task2_accepts_id_of_a_freed_sequence),
    LISTED(task2_needs_the_ceiling_of_length_by_16),
    LISTED(task2_accepts_4096_records),
    LISTED(task2_refuses_4097_records),
    LISTED_HEAP(task2_refusing_too_many_records_allocates_nothing),
    LISTED(task2_oom_returns_null),
    LISTED(task2_oom_leaves_nothing),
    LISTED_HEAP(task2_oom_allocates_nothing),
    LISTED_HEAP(task2_invalid_arguments_allocate_nothing),
    LISTED(task2_may_take_the_last_free_block),
    LISTED(task2_unneeded_l1_entries_are_null),
    LISTED(task2_unused_l2_entries_are_minus_one),
    LISTED(task2_maps_blocks_in_order),
    LISTED(task2_seventeenth_block_is_in_the_second_table),
    LISTED(task2_sets_ref_count_to_one),
    LISTED(task2_decrements_free_local_blocks),
    LISTED(task2_sets_kv_count),
    LISTED(task2_stores_seq_id),
    LISTED(task2_appends_to_the_tail),
    LISTED(task2_create_leaves_others_alone),
    LISTED_HEAP(task2_every_table_is_an_allocation),
    LISTED(task2_free_returns_zero),
    LISTED(task2_free_refuses_unknown_id),
    LISTED(task2_free_detaches_the_first),
    LISTED(task2_free_detaches_one_in_the_middle),
    LISTED(task2_free_detaches_the_last),
    LISTED(task2_free_of_the_only_one_empties_the_list),
    LISTED(task2_free_releases_every_block),
    LISTED(task2_free_increments_free_local_blocks),
    LISTED(task2_free_keeps_shared_blocks),
    LISTED(task2_free_does_not_write_the_pool),
    LISTED_HEAP(task2_free_frees_every_table),
    LISTED_HEAP(task2_free_frees_tables_that_append_made),
    LISTED_HEAP(task2_free_of_unknown_id_allocates_nothing),
    END_OF_LIST,
};

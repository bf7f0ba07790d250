//go:build ignore

/* Task 4: append_kv. */
#include <limits.h>
#include <string.h>

#include "heap.h"
#include "state.h"

/* A sequence with this many records in a pool with this many blocks; id 1, blocks from 0 on. */
static Sequence *open_with(struct world *w, int blocks, int length) {
    world_open(w, blocks);
    Sequence *seq = create_sequence(w->engine, 1, length);
    CHECK(seq != NULL);
    return seq;
}

static void refuses(struct world *w, int seq_id) {
    struct state before;
    state_take(&before, w);
    pool_lock(&w->pool);
    CHECK_INT(append_kv(w->engine, seq_id, 0x600DF00D), -1);
    pool_unlock(&w->pool);
    CHECK_STATE(&before, w);
}

/* ---- address translation ---- */

TEST(task4_refuses_unknown_id, "Find the sequence.") {
    struct world w;
    world_open(&w, 10);
    refuses(&w, 1);
    CHECK(create_sequence(w.engine, 1, 20) != NULL);
    refuses(&w, 2);
    refuses(&w, 0);
    refuses(&w, -1);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    refuses(&w, 1);
    world_close(&w);
}

TEST(task4_finds_any_sequence_of_the_list, "Find the sequence.") {
    struct world w;
    world_open(&w, 10);
    for (int i = 0; i < 5; i++) {
        CHECK(create_sequence(w.engine, 30 + i, 1) != NULL);
    }
    for (int i = 0; i < 5; i++) {
        struct state s;
        state_take(&s, &w);
        CHECK_INT(append_kv(w.engine, 30 + i, 9), 0);
        s.seq[i].kv_count = 2;
        state_write(&s, &w, i, 1, 9);
        CHECK_STATE(&s, &w);
    }
    world_close(&w);
}

/* A pool whose address is a multiple of 4, but not of 8. */
TEST(task4_any_address_of_the_pool, "Calculate the exact physical memory address of the target block") {
    static _Alignas(16) int space[1 + 4 * KV_PER_BLOCK];
    int *pool = space + 1;
    LLMEngine *engine = llm_init(pool, 4 * BLOCK_SIZE);
    CHECK(engine != NULL && engine->pool_base_ptr == pool);
    CHECK(create_sequence(engine, 1, 17) != NULL);
    CHECK_INT(append_kv(engine, 1, 5), 0);
    CHECK_INT(pool[KV_PER_BLOCK + 1], 5);
    CHECK(fork_sequence(engine, 1, 2) != NULL);
    CHECK_INT(append_kv(engine, 1, 6), 0); /* a copy of block 1 in block 2 */
    CHECK_INT(pool[2 * KV_PER_BLOCK + 1], 5);
    CHECK_INT(pool[2 * KV_PER_BLOCK + 2], 6);
    CHECK_INT(pool[KV_PER_BLOCK + 2], 0);
    CHECK_INT(space[0], 0);
    CHECK_INT(llm_destroy(engine), 0);
}

/* Nobody remembers that an append was refused. */
TEST(task4_refused_append_may_succeed_later, "No, if the L2 slot is mapped and ref_count == 1 (Exclusive access).") {
    struct world w;
    open_with(&w, 1, 5);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    refuses(&w, 1);
    CHECK_INT(free_sequence(w.engine, 2), 0); /* no block is freed by it */
    struct state s;
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 9), 0);
    s.seq[0].kv_count = 6;
    state_write(&s, &w, 0, 5, 9);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_returns_zero, "Increment kv_count and return 0.") {
    struct world w;
    open_with(&w, 10, 1);
    for (int i = 0; i < 40; i++) {
        CHECK_INT(append_kv(w.engine, 1, i), 0);
    }
    world_close(&w);
}

TEST(task4_increments_kv_count, "Increment kv_count and return 0.") {
    struct world w;
    Sequence *seq = open_with(&w, 10, 1);
    for (int i = 0; i < 40; i++) {
        CHECK_INT(append_kv(w.engine, 1, i), 0);
        CHECK_INT(seq->kv_count, 2 + i);
    }
    world_close(&w);
}

TEST(task4_stores_at_the_offset, "cast it to int*, and store kv_data at the correct offset.") {
    struct world w;
    open_with(&w, 2, 1);
    for (int offset = 1; offset < KV_PER_BLOCK; offset++) {
        struct state s;
        state_take(&s, &w);
        CHECK_INT(append_kv(w.engine, 1, 1000 + offset), 0);
        s.seq[0].kv_count++;
        state_write(&s, &w, 0, offset, 1000 + offset);
        CHECK_STATE(&s, &w);
    }
    world_close(&w);
}

TEST(task4_stores_the_whole_int,
     "one KV record is simplified as a single int (occupying 4 Bytes).") {
    static const int values[] = {0, -1, 1, 0x12345678, INT_MIN, INT_MAX, 256, -32769};
    struct world w;
    Sequence *seq = open_with(&w, 2, 1);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK_INT(append_kv(w.engine, 1, values[i]), 0);
        CHECK_INT(record_at(&w, seq, 1 + (int)i), values[i]);
    }
    world_close(&w);
}

TEST(task4_record_613_of_the_example,
     "613 / 16 = 38 [...] 613 % 16 = 5 [...] Go to block_table[2][6] [...] jump to its 5th "
     "integer slot, and write the data.") {
    struct world w;
    struct state s;
    Sequence *seq = open_with(&w, 60, 613);
    CHECK_INT(seq->block_table[2][6], 38);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    s.seq[0].kv_count = 614;
    state_write(&s, &w, 38, 5, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_writes_to_the_physical_block,
     "You read the integer stored at block_table[2][6] (e.g., let's say it's 3). This means "
     "the data belongs in Physical Block #3.") {
    struct world w;
    struct state s;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 5, 60) != NULL);
    CHECK(create_sequence(w.engine, 1, 16) != NULL);
    CHECK(create_sequence(w.engine, 6, 16) != NULL);
    CHECK(create_sequence(w.engine, 2, 20) != NULL);
    CHECK_INT(free_sequence(w.engine, 5), 0);
    CHECK_INT(append_kv(w.engine, 1, 4), 0); /* id 1: blocks 4, 0 */
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 2, 77), 0); /* id 2: blocks 6, 7 */
    CHECK_INT(append_kv(w.engine, 1, 78), 0);
    s.seq[2].kv_count++;
    s.seq[0].kv_count++;
    state_write(&s, &w, 7, 4, 77);
    state_write(&s, &w, 0, 1, 78);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_keeps_all_4096_records,
     "a multi-level block table [...] to manage a large memory pool") {
    struct world w;
    Sequence *seq = open_with(&w, 257, 1);
    append_many(&w, seq, 4095);
    CHECK_INT(seq->kv_count, 4096);
    for (int position = 1; position < 4096; position++) {
        CHECK_INT(record_at(&w, seq, position), value_of(1, position));
    }
    CHECK_CONSERVED(&w);
    CHECK_INT(w.engine->free_local_blocks, 1);
    world_close(&w);
}

TEST(task4_record_4096_is_the_last, "Return -1 if logical_idx >= 256.") {
    struct world w;
    Sequence *seq = open_with(&w, 300, 4095);
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    CHECK_INT(record_at(&w, seq, 4095), 5);
    refuses(&w, 1);
    refuses(&w, 1);
    world_close(&w);
}

TEST(task4_full_sequence_stays_full_when_shared, "Return -1 if logical_idx >= 256.") {
    struct world w;
    open_with(&w, 300, 4096);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    refuses(&w, 1);
    refuses(&w, 2);
    world_close(&w);
}

/* ---- a new block or not ---- */

TEST(task4_exclusive_block_needs_no_new_one,
     "No, if the L2 slot is mapped and ref_count == 1 (Exclusive access).") {
    struct world w;
    Sequence *seq = open_with(&w, 10, 17);
    append_many(&w, seq, 15);
    CHECK_INT(w.engine->free_local_blocks, 8);
    CHECK_INT(seq->block_table[0][1], 1);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_exclusive_block_needs_no_free_one,
     "If a new block is required but free_local_blocks == 0, return -1 (here none is "
     "required).") {
    struct world w;
    Sequence *seq = open_with(&w, 2, 20);
    CHECK_INT(w.engine->free_local_blocks, 0);
    append_many(&w, seq, 12);
    for (int position = 20; position < 32; position++) {
        CHECK_INT(record_at(&w, seq, position), value_of(1, position));
    }
    world_close(&w);
}

TEST(task4_full_block_leads_to_a_new_one,
     "New Page: Allocate a free block (First-Fit), map it, set ref to 1, and decrement "
     "free_local_blocks.") {
    struct world w;
    struct state s;
    open_with(&w, 10, 32);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 33), 0);
    s.free_local_blocks = 7;
    s.ref_count[2] = 1;
    s.seq[0].kv_count = 33;
    s.seq[0].entry[0][2] = 2;
    state_write(&s, &w, 2, 0, 33);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_new_block_keeps_its_old_bytes,
     "You may ONLY write to the physical memory during an actual append_kv operation: the one "
     "record.") {
    struct world w;
    open_with(&w, 10, 16);
    CHECK_INT(append_kv(w.engine, 1, 33), 0);
    size_t at = state_offset(&w, 1);
    for (size_t i = at + KV_SIZE; i < w.pool.pages_size; i++) {
        CHECK_INT(w.pool.pages[i], pool_pattern(i));
    }
    world_close(&w);
}

TEST(task4_new_block_only_when_one_is_full,
     "We only allocate a new physical block when the current one is completely full, or if we "
     "trigger CoW.") {
    struct world w;
    Sequence *seq = open_with(&w, 10, 1);
    for (int count = 2; count <= 100; count++) {
        CHECK_INT(append_kv(w.engine, 1, 5), 0);
        CHECK_INT(w.engine->free_local_blocks, 10 - (count + 15) / 16);
        CHECK_INT(seq->kv_count, count);
    }
    world_close(&w);
}

TEST(task4_allocates_an_l2_table, "Allocate an L2 table if it is NULL.") {
    struct world w;
    struct state s;
    Sequence *seq = open_with(&w, 40, 256);
    CHECK_NULL(seq->block_table[1]);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 33), 0);
    CHECK(seq->block_table[1] != NULL);
    s.free_local_blocks--;
    s.ref_count[16] = 1;
    s.seq[0].kv_count = 257;
    s.seq[0].l2[1] = seq->block_table[1];
    s.seq[0].entry[1][0] = 16; /* and -1 after it */
    state_write(&s, &w, 16, 0, 33);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_l2_table_is_an_allocation, "Allocate an L2 table if it is NULL.") {
    struct world w;
    Sequence *seq = open_with(&w, 40, 256);
    long live = heap_live();
    append_many(&w, seq, 256);
    CHECK_INT(heap_live(), live + 1);
    CHECK(heap_size_of(seq->block_table[1]) >= L2_PT_SIZE * sizeof(int));
    world_close(&w);
}

/* ---- no block left ---- */

TEST(task4_oom_new_page_changes_nothing,
     "If a new block is required but free_local_blocks == 0, return -1 immediately without "
     "modifying any states.") {
    struct world w;
    open_with(&w, 2, 32);
    refuses(&w, 1);
    refuses(&w, 1);
    world_close(&w);
}

TEST(task4_oom_shared_tail_changes_nothing,
     "If a new block is required but free_local_blocks == 0, return -1 immediately without "
     "modifying any states.") {
    struct world w;
    open_with(&w, 2, 20);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    refuses(&w, 1);
    refuses(&w, 2);
    world_close(&w);
}

TEST(task4_oom_full_shared_tail_changes_nothing,
     "If a new block is required but free_local_blocks == 0, return -1 immediately without "
     "modifying any states.") {
    struct world w;
    open_with(&w, 2, 32);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    refuses(&w, 1);
    refuses(&w, 2);
    world_close(&w);
}

TEST(task4_oom_makes_no_l2_table,
     "If a new block is required but free_local_blocks == 0, return -1 immediately without "
     "modifying any states.") {
    struct world w;
    open_with(&w, 16, 256);
    refuses(&w, 1);
    CHECK_NULL(nth_sequence(w.engine, 0)->block_table[1]);
    world_close(&w);
}

TEST(task4_oom_allocates_nothing,
     "DO NOT allocate memory (malloc) [...] if the operation will eventually fail due to "
     "Out-Of-Memory (OOM).") {
    struct world w;
    open_with(&w, 17, 256);
    CHECK(create_sequence(w.engine, 2, 3) != NULL);
    CHECK(fork_sequence(w.engine, 2, 3) != NULL);
    long calls = heap_calls();
    CHECK_INT(append_kv(w.engine, 1, 5), -1);
    CHECK_INT(append_kv(w.engine, 2, 5), -1);
    CHECK_INT(append_kv(w.engine, 99, 5), -1);
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task4_full_sequence_allocates_nothing, "Return -1 if logical_idx >= 256.") {
    struct world w;
    open_with(&w, 300, 4096);
    long calls = heap_calls();
    CHECK_INT(append_kv(w.engine, 1, 5), -1);
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task4_goes_on_after_oom,
     "If a new block is required but free_local_blocks == 0, return -1 (and once one is free, "
     "not).") {
    struct world w;
    Sequence *seq = open_with(&w, 3, 32);
    CHECK(create_sequence(w.engine, 2, 1) != NULL);
    CHECK_INT(append_kv(w.engine, 1, 5), -1);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(append_kv(w.engine, 1, 6), 0);
    CHECK_INT(record_at(&w, seq, 32), 6);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

/* ---- copy on write ---- */

/* Id 1 with 20 records in blocks 0 and 1, 4 of them appended, and its child, id 2. */
static void open_shared(struct world *w, int blocks, Sequence **parent, Sequence **child) {
    *parent = open_with(w, blocks, 16);
    append_many(w, *parent, 4);
    *child = fork_sequence(w->engine, 1, 2);
    CHECK(*child != NULL);
}

TEST(task4_cow_copies_all_64_bytes,
     "Use memcpy to copy exactly 64 bytes from the old physical block to the new one.") {
    struct world w;
    struct state before;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    state_take(&before, &w);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    size_t from = state_offset(&w, 1), to = state_offset(&w, 2);
    for (size_t i = 0; i < BLOCK_SIZE; i++) {
        if (i / KV_SIZE != 4) {
            CHECK_INT(w.pool.pages[to + i], before.bytes[from + i]);
        }
    }
    state_drop(&before);
    CHECK_INT(record_at(&w, child, 20), 1111);
    world_close(&w);
}

TEST(task4_cow_copies_no_byte_more,
     "copy exactly 64 bytes from the old physical block to the new one.") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    for (size_t i = state_offset(&w, 3); i < w.pool.pages_size; i++) {
        CHECK_INT(w.pool.pages[i], pool_pattern(i));
    }
    world_close(&w);
}

TEST(task4_cow_into_the_last_block_stays_in_the_pool,
     "copy exactly 64 bytes from the old physical block to the new one.") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 3, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(child->block_table[0][1], 2);
    CHECK_INT(append_kv(w.engine, 1, 1112), 0);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_cow_leaves_the_shared_block_alone,
     "it must not write it directly. If it does, Sequence B's memory is corrupted.") {
    struct world w;
    Sequence *parent, *child;
    struct state before;
    open_shared(&w, 10, &parent, &child);
    state_take(&before, &w);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    for (size_t i = 0, at = state_offset(&w, 0); i < 2 * BLOCK_SIZE; i++) {
        CHECK_INT(w.pool.pages[at + i], before.bytes[at + i]);
    }
    state_drop(&before);
    world_close(&w);
}

TEST(task4_cow_decrements_the_old_ref_count, "decrements the ref_count of Block #8") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(w.engine->ref_count[1], 1);
    CHECK_INT(w.engine->ref_count[0], 2);
    world_close(&w);
}

TEST(task4_cow_sets_the_new_ref_count, "sets the ref_count of Block #12 to 1") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(w.engine->ref_count[2], 1);
    world_close(&w);
}

TEST(task4_cow_decrements_free_local_blocks,
     "Adjust reference counts, update the L2 mapping, and decrement free_local_blocks.") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(w.engine->free_local_blocks, 7);
    world_close(&w);
}

TEST(task4_cow_updates_its_own_table_only, "updates its own L2 table to point to Block #12") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(child->block_table[0][1], 2);
    CHECK_INT(child->block_table[0][0], 0);
    CHECK_INT(parent->block_table[0][1], 1);
    CHECK_INT(parent->block_table[0][0], 0);
    world_close(&w);
}

TEST(task4_cow_example_of_blocks_8_and_12,
     "If Sequence A and Sequence B share Physical Block #8 [...] it finds a new free block "
     "(e.g., Block #12) [...]") {
    struct world w;
    struct state s;
    world_open(&w, 16);
    CHECK(create_sequence(w.engine, 5, 8 * 16) != NULL);
    CHECK(create_sequence(w.engine, 1, 5) != NULL);
    CHECK(create_sequence(w.engine, 6, 3 * 16) != NULL);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 99), 0);
    s.free_local_blocks = 3;
    s.ref_count[8] = s.ref_count[12] = 1;
    s.seq[1].kv_count = 6;
    s.seq[1].entry[0][0] = 12;
    memcpy(s.bytes + state_offset(&w, 12), s.bytes + state_offset(&w, 8), BLOCK_SIZE);
    state_write(&s, &w, 12, 5, 99);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_last_sharer_writes_in_place,
     "No, if the L2 slot is mapped and ref_count == 1 (Exclusive access).") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(append_kv(w.engine, 1, 2222), 0);
    CHECK_INT(parent->block_table[0][1], 1);
    CHECK_INT(w.engine->free_local_blocks, 7);
    CHECK_INT(record_at(&w, parent, 20), 2222);
    CHECK_INT(record_at(&w, child, 20), 1111);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_parent_copies_if_it_appends_first,
     "Yes, if the L2 slot is mapped but ref_count > 1 (Requires CoW).") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    CHECK_INT(append_kv(w.engine, 1, 2222), 0);
    CHECK_INT(parent->block_table[0][1], 2);
    CHECK_INT(child->block_table[0][1], 1);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(child->block_table[0][1], 1);
    CHECK_INT(w.engine->free_local_blocks, 7);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_three_sharers_copy_twice,
     "Yes, if the L2 slot is mapped but ref_count > 1 (Requires CoW).") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    Sequence *third = fork_sequence(w.engine, 2, 3);
    CHECK(third != NULL);
    CHECK_INT(append_kv(w.engine, 3, 3333), 0);
    CHECK_INT(w.engine->ref_count[1], 2);
    CHECK_INT(append_kv(w.engine, 1, 2222), 0);
    CHECK_INT(w.engine->ref_count[1], 1);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(third->block_table[0][1], 2);
    CHECK_INT(parent->block_table[0][1], 3);
    CHECK_INT(child->block_table[0][1], 1);
    CHECK_INT(w.engine->free_local_blocks, 6);
    CHECK_INT(record_at(&w, third, 20), 3333);
    CHECK_INT(record_at(&w, parent, 20), 2222);
    CHECK_INT(record_at(&w, child, 20), 1111);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_256_sharers_copy_once_each,
     "Yes, if the L2 slot is mapped but ref_count > 1 (Requires CoW).") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    for (int id = 3; id <= 257; id++) {
        CHECK(fork_sequence(w.engine, 1, id) != NULL);
    }
    CHECK_INT(w.engine->ref_count[1], 257);
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(w.engine->ref_count[1], 256);
    CHECK_INT(child->block_table[0][1], 2);
    CHECK_INT(append_kv(w.engine, 3, 2222), 0);
    CHECK_INT(w.engine->ref_count[1], 255);
    CHECK_INT(record_at(&w, child, 20), 1111);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_branches_stay_apart,
     "creates multiple Branches (child sequences) from the same initial user prompt.") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 20, &parent, &child);
    for (int i = 0; i < 60; i++) {
        CHECK_INT(append_kv(w.engine, 1, value_of(1, 20 + i)), 0);
        CHECK_INT(append_kv(w.engine, 2, value_of(2, 20 + i)), 0);
    }
    for (int position = 20; position < 80; position++) {
        CHECK_INT(record_at(&w, parent, position), value_of(1, position));
        CHECK_INT(record_at(&w, child, position), value_of(2, position));
    }
    for (int position = 16; position < 20; position++) {
        CHECK_INT(record_at(&w, child, position), value_of(1, position));
    }
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task4_full_shared_block_is_not_copied,
     "We only allocate a new physical block when the current one is completely full, or if we "
     "trigger CoW (writing to a shared block).") {
    struct world w;
    struct state s;
    open_with(&w, 10, 32);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 2, 33), 0);
    s.free_local_blocks = 7;
    s.ref_count[2] = 1;
    s.seq[1].kv_count = 33;
    s.seq[1].entry[0][2] = 2;
    state_write(&s, &w, 2, 0, 33);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_cow_in_a_later_table, "updates its own L2 table") {
    struct world w;
    struct state s;
    open_with(&w, 60, 613);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 2, 77), 0);
    s.free_local_blocks--;
    s.ref_count[38] = s.ref_count[39] = 1;
    s.seq[1].kv_count = 614;
    s.seq[1].entry[2][6] = 39;
    memcpy(s.bytes + state_offset(&w, 39), s.bytes + state_offset(&w, 38), BLOCK_SIZE);
    state_write(&s, &w, 39, 5, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task4_cow_allocates_no_table,
     "Copy-on-Write (CoW): Allocate a free block. [...] update the L2 mapping (and no table is "
     "new).") {
    struct world w;
    Sequence *parent, *child;
    open_shared(&w, 10, &parent, &child);
    long live = heap_live();
    CHECK_INT(append_kv(w.engine, 2, 1111), 0);
    CHECK_INT(append_kv(w.engine, 1, 1111), 0);
    CHECK_INT(heap_live(), live);
    world_close(&w);
}

const struct test task4_tests[] = {
    LISTED(task4_refuses_unknown_id),
    LISTED(task4_finds_any_sequence_of_the_list),
    LISTED(task4_any_address_of_the_pool),
    LISTED(task4_refused_append_may_succeed_later),
    LISTED(task4_returns_zero),
    LISTED(task4_increments_kv_count),
    LISTED(task4_stores_at_the_offset),
    LISTED(task4_stores_the_whole_int),
    LISTED(task4_record_613_of_the_example),
    LISTED(task4_writes_to_the_physical_block),
    LISTED(task4_keeps_all_4096_records),
    LISTED(task4_record_4096_is_the_last),
    LISTED(task4_full_sequence_stays_full_when_shared),
    LISTED(task4_exclusive_block_needs_no_new_one),
    LISTED(task4_exclusive_block_needs_no_free_one),
    LISTED(task4_full_block_leads_to_a_new_one),
    LISTED(task4_new_block_keeps_its_old_bytes),
    LISTED(task4_new_block_only_when_one_is_full),
    LISTED(task4_allocates_an_l2_table),
    LISTED_HEAP(task4_l2_table_is_an_allocation),
    LISTED(task4_oom_new_page_changes_nothing),
    LISTED(task4_oom_shared_tail_changes_nothing),
    LISTED(task4_oom_full_shared_tail_changes_nothing),
    LISTED(task4_oom_makes_no_l2_table),
    LISTED_HEAP(task4_oom_allocates_nothing),
    LISTED_HEAP(task4_full_sequence_allocates_nothing),
    LISTED(task4_goes_on_after_oom),
    LISTED(task4_cow_copies_all_64_bytes),
    LISTED(task4_cow_copies_no_byte_more),
    LISTED(task4_cow_into_the_last_block_stays_in_the_pool),
    LISTED(task4_cow_leaves_the_shared_block_alone),
    LISTED(task4_cow_decrements_the_old_ref_count),
    LISTED(task4_cow_sets_the_new_ref_count),
    LISTED(task4_cow_decrements_free_local_blocks),
    LISTED(task4_cow_updates_its_own_table_only),
    LISTED(task4_cow_example_of_blocks_8_and_12),
    LISTED(task4_last_sharer_writes_in_place),
    LISTED(task4_parent_copies_if_it_appends_first),
    LISTED(task4_three_sharers_copy_twice),
    LISTED(task4_256_sharers_copy_once_each),
    LISTED(task4_branches_stay_apart),
    LISTED(task4_full_shared_block_is_not_copied),
    LISTED(task4_cow_in_a_later_table),
    LISTED_HEAP(task4_cow_allocates_no_table),
    END_OF_LIST,
};

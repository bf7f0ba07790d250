//go:build ignore

/* Task 3: fork_sequence. */
#include <limits.h>
#include <string.h>

#include "heap.h"
#include "state.h"

/* A parent of 300 records, id 1: two L2 tables, the last block partly used. */
static Sequence *open_with_parent(struct world *w, int blocks) {
    world_open(w, blocks);
    CHECK(create_sequence(w->engine, 5, 20) != NULL);
    Sequence *parent = create_sequence(w->engine, 1, 290);
    CHECK(parent != NULL);
    append_many(w, parent, 10);
    return parent;
}

static Sequence *branch(struct world *w, int parent, int child) {
    Sequence *seq = fork_sequence(w->engine, parent, child);
    if (seq == NULL) {
        check_fail(__FILE__, __LINE__, "fork_sequence(engine, %d, %d) returned NULL", parent, child);
    }
    return seq;
}

static void refuses(struct world *w, int parent, int child) {
    struct state before;
    state_take(&before, w);
    CHECK_NULL(fork_sequence(w->engine, parent, child));
    CHECK_STATE(&before, w);
}

TEST(task3_refuses_unknown_parent, "Ensure the parent exists.") {
    struct world w;
    world_open(&w, 10);
    refuses(&w, 1, 2);
    CHECK(create_sequence(w.engine, 1, 20) != NULL);
    refuses(&w, 99, 8);
    refuses(&w, 2, 1);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    refuses(&w, 1, 2);
    world_close(&w);
}

TEST(task3_refuses_existing_new_id, "Ensure [...] new_seq_id is globally unique.") {
    struct world w;
    open_with_parent(&w, 40);
    CHECK(create_sequence(w.engine, 6, 20) != NULL);
    refuses(&w, 1, 5);
    refuses(&w, 1, 6);
    refuses(&w, 5, 1);
    world_close(&w);
}

TEST(task3_refuses_a_fork_onto_itself, "Ensure [...] new_seq_id is globally unique.") {
    struct world w;
    open_with_parent(&w, 40);
    refuses(&w, 1, 1);
    refuses(&w, 5, 5);
    world_close(&w);
}

TEST(task3_refusing_allocates_nothing,
     "If any phase fails, return immediately. DO NOT allocate memory (malloc) [...].") {
    struct world w;
    open_with_parent(&w, 40);
    long calls = heap_calls();
    CHECK_NULL(fork_sequence(w.engine, 99, 8));
    CHECK_NULL(fork_sequence(w.engine, 1, 5));
    CHECK_NULL(fork_sequence(w.engine, 1, 1));
    CHECK_INT(heap_calls(), calls);
    world_close(&w);
}

TEST(task3_accepts_any_int_as_id,
     "int seq_id; // Unique identifier for the sequence (no int is excluded)") {
    struct world w;
    open_with_parent(&w, 40);
    CHECK_INT(branch(&w, 1, 0)->seq_id, 0);
    CHECK_INT(branch(&w, 0, -3)->seq_id, -3);
    CHECK_INT(branch(&w, -3, INT_MAX)->seq_id, INT_MAX);
    CHECK_INT(branch(&w, INT_MAX, INT_MIN)->seq_id, INT_MIN);
    CHECK_INT(branch(&w, INT_MIN, -1)->seq_id, -1);
    world_close(&w);
}

TEST(task3_has_its_own_tables,
     "Allocate a new Sequence and a new L1 block table for the child. [...] allocate a child "
     "L2 table") {
    struct world w;
    Sequence *parent = open_with_parent(&w, 40);
    Sequence *child = branch(&w, 1, 2);
    CHECK(child != parent);
    CHECK(child->block_table != parent->block_table);
    CHECK(child->block_table[0] != parent->block_table[0]);
    CHECK(child->block_table[1] != parent->block_table[1]);
    world_close(&w);
}

TEST(task3_every_table_is_an_allocation,
     "Allocate a new Sequence and a new L1 block table for the child. [...] allocate a child "
     "L2 table") {
    struct world w;
    open_with_parent(&w, 40);
    long live = heap_live();
    Sequence *child = branch(&w, 1, 2);
    CHECK_INT(heap_live() - live, 4);
    CHECK(heap_size_of(child) >= sizeof(Sequence));
    CHECK(heap_size_of(child->block_table) >= L1_PT_SIZE * sizeof(int *));
    CHECK(heap_size_of(child->block_table[0]) >= L2_PT_SIZE * sizeof(int));
    CHECK(heap_size_of(child->block_table[1]) >= L2_PT_SIZE * sizeof(int));
    world_close(&w);
}

TEST(task3_copies_the_mapped_entries, "exactly copy the mapped entries.") {
    struct world w;
    Sequence *parent = open_with_parent(&w, 40);
    Sequence *child = branch(&w, 1, 2);
    for (int logical = 0; logical < 19; logical++) {
        int l1 = logical / L2_PT_SIZE, l2 = logical % L2_PT_SIZE;
        CHECK_INT(child->block_table[l1][l2], parent->block_table[l1][l2]);
    }
    world_close(&w);
}

TEST(task3_unmapped_entries_are_minus_one, "allocate a child L2 table, initialize to -1") {
    struct world w;
    open_with_parent(&w, 40);
    Sequence *child = branch(&w, 1, 2);
    for (int l2 = 3; l2 < L2_PT_SIZE; l2++) {
        CHECK_INT(child->block_table[1][l2], -1);
    }
    world_close(&w);
}

TEST(task3_null_tables_stay_null,
     "For each non-NULL parent L2 table: allocate a child L2 table (and for no other).") {
    struct world w;
    open_with_parent(&w, 40);
    Sequence *child = branch(&w, 1, 2);
    for (int l1 = 2; l1 < L1_PT_SIZE; l1++) {
        CHECK_NULL(child->block_table[l1]);
    }
    world_close(&w);
}

TEST(task3_increments_every_ref_count,
     "Increment the global ref_count for every valid physical block inherited by the child.") {
    struct world w;
    open_with_parent(&w, 40);
    branch(&w, 1, 2);
    for (int b = 0; b < 40; b++) {
        CHECK_INT(w.engine->ref_count[b], b < 2 ? 1 : b < 21 ? 2 : 0);
    }
    world_close(&w);
}

TEST(task3_third_sharer_makes_three,
     "Increment the global ref_count (tracking how many sequences are currently using a "
     "specific physical block).") {
    struct world w;
    open_with_parent(&w, 40);
    for (int users = 2; users < 7; users++) {
        branch(&w, 1, 10 + users);
        for (int b = 2; b < 21; b++) {
            CHECK_INT(w.engine->ref_count[b], users);
        }
    }
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task3_takes_no_block,
     "To save memory, it should point to the exact same physical blocks as its parent.") {
    struct world w;
    open_with_parent(&w, 40);
    branch(&w, 1, 2);
    branch(&w, 2, 3);
    CHECK_INT(w.engine->free_local_blocks, 19);
    world_close(&w);
}

TEST(task3_works_without_a_free_block,
     "To save memory, it should point to the exact same physical blocks as its parent (so it "
     "needs none).") {
    struct world w;
    open_with_parent(&w, 21);
    CHECK_INT(w.engine->free_local_blocks, 0);
    branch(&w, 1, 2);
    branch(&w, 2, 3);
    CHECK_INT(w.engine->free_local_blocks, 0);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task3_assigns_kv_count, "Assign kv_count [...].") {
    struct world w;
    open_with_parent(&w, 40);
    CHECK_INT(branch(&w, 1, 2)->kv_count, 300);
    CHECK_INT(branch(&w, 5, 3)->kv_count, 20);
    world_close(&w);
}

TEST(task3_assigns_new_seq_id, "Assign [...] new_seq_id.") {
    struct world w;
    Sequence *parent = open_with_parent(&w, 40);
    CHECK_INT(branch(&w, 1, 2)->seq_id, 2);
    CHECK_INT(parent->seq_id, 1);
    world_close(&w);
}

TEST(task3_appends_to_the_tail,
     "Append the child sequence to the tail of active_seqs, and return it.") {
    struct world w;
    struct state s;
    open_with_parent(&w, 40);
    CHECK(create_sequence(w.engine, 6, 1) != NULL);
    for (int i = 0; i < 3; i++) {
        Sequence *child = branch(&w, 1, 20 + i);
        CHECK_PTR(w.engine->active_seqs.prev, &child->node);
        state_take(&s, &w);
        CHECK_INT(s.seqs, 4 + i);
        CHECK_PTR(s.seq[3 + i].at, child);
        state_drop(&s);
    }
    world_close(&w);
}

TEST(task3_leaves_the_parent_alone,
     "We create a child sequence (and only its blocks' ref_counts change for the others).") {
    struct world w;
    struct state s;
    open_with_parent(&w, 40);
    state_take(&s, &w);
    Sequence *child = branch(&w, 1, 2);
    for (int b = 2; b < 21; b++) {
        s.ref_count[b] = 2;
    }
    s.seqs = 3;
    s.seq[2] = s.seq[1];
    s.seq[2].at = child;
    s.seq[2].seq_id = 2;
    s.seq[2].block_table = child->block_table;
    memcpy(s.seq[2].l2, child->block_table, sizeof s.seq[2].l2);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(task3_does_not_write_the_pool,
     "You may ONLY write to the physical memory during an actual append_kv operation.") {
    struct world w;
    struct state before;
    open_with_parent(&w, 40);
    state_take(&before, &w);
    pool_lock(&w.pool);
    branch(&w, 1, 2);
    branch(&w, 5, 3);
    pool_unlock(&w.pool);
    CHECK(memcmp(before.bytes, w.pool.pages, w.pool.pages_size) == 0);
    state_drop(&before);
    world_close(&w);
}

TEST(task3_full_sequence_can_be_forked, "exactly copy the mapped entries (256 of them).") {
    struct world w;
    world_open(&w, 260);
    CHECK(create_sequence(w.engine, 1, 4096) != NULL);
    Sequence *child = branch(&w, 1, 2);
    for (int logical = 0; logical < MAX_LOGICAL_BLOCKS; logical++) {
        CHECK_INT(child->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE], logical);
    }
    CHECK_CONSERVED(&w);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(w.engine->free_local_blocks, 260);
    world_close(&w);
}

TEST(task3_child_outlives_its_parent,
     "they should just share the physical memory blocks of the prompt.") {
    struct world w;
    open_with_parent(&w, 40);
    Sequence *child = branch(&w, 1, 2);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    for (int position = 290; position < 300; position++) {
        CHECK_INT(record_at(&w, child, position), value_of(1, position));
    }
    CHECK_CONSERVED(&w);
    CHECK(create_sequence(w.engine, 1, 16 * 19) != NULL);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(task3_parent_outlives_its_child,
     "they should just share the physical memory blocks of the prompt.") {
    struct world w;
    Sequence *parent = open_with_parent(&w, 40);
    struct state before;
    state_take(&before, &w);
    branch(&w, 1, 2);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_STATE(&before, &w);
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    CHECK_INT(record_at(&w, parent, 300), 5);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

const struct test task3_tests[] = {
    LISTED(task3_refuses_unknown_parent),
    LISTED(task3_refuses_existing_new_id),
    LISTED(task3_refuses_a_fork_onto_itself),
    LISTED_HEAP(task3_refusing_allocates_nothing),
    LISTED(task3_accepts_any_int_as_id),
    LISTED(task3_has_its_own_tables),
    LISTED_HEAP(task3_every_table_is_an_allocation),
    LISTED(task3_copies_the_mapped_entries),
    LISTED(task3_unmapped_entries_are_minus_one),
    LISTED(task3_null_tables_stay_null),
    LISTED(task3_increments_every_ref_count),
    LISTED(task3_third_sharer_makes_three),
    LISTED(task3_takes_no_block),
    LISTED(task3_works_without_a_free_block),
    LISTED(task3_assigns_kv_count),
    LISTED(task3_assigns_new_seq_id),
    LISTED(task3_appends_to_the_tail),
    LISTED(task3_leaves_the_parent_alone),
    LISTED(task3_does_not_write_the_pool),
    LISTED(task3_full_sequence_can_be_forked),
    LISTED(task3_child_outlives_its_parent),
    LISTED(task3_parent_outlives_its_child),
    END_OF_LIST,
};

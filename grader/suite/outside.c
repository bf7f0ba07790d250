//go:build ignore

/*
 * "Your code will be evaluated using White-Box testing": every field is public, and a test
 * may write it between two calls. Some sentences of the handout can be tested only in this
 * way, because the calls alone never leave holes in the tables. The tests keep counts and
 * tables consistent.
 */
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "state.h"

static int *entry_of(Sequence *seq, int logical) {
    return &seq->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE];
}

/* Takes the logical block away from the sequence. */
static void unmap(struct world *w, Sequence *seq, int logical) {
    int *entry = entry_of(seq, logical);
    if (*entry != -1) {
        w->engine->free_local_blocks += --w->engine->ref_count[*entry] == 0;
        *entry = -1;
    }
}

static void drop_table(struct world *w, Sequence *seq, int l1) {
    for (int l2 = 0; l2 < L2_PT_SIZE; l2++) {
        unmap(w, seq, l1 * L2_PT_SIZE + l2);
    }
    free(seq->block_table[l1]);
    seq->block_table[l1] = NULL;
}

/* A table as the sequence's owner would have allocated it. */
static int *new_table(void) {
    int *table = watched_malloc(L2_PT_SIZE * sizeof *table);
    CHECK(table != NULL);
    memset(table, -1, L2_PT_SIZE * sizeof *table);
    return table;
}

/* Gives the sequence this free block as its logical block. */
static void map(struct world *w, Sequence *seq, int logical, int block) {
    if (seq->block_table[logical / L2_PT_SIZE] == NULL) {
        seq->block_table[logical / L2_PT_SIZE] = new_table();
    }
    *entry_of(seq, logical) = block;
    w->engine->ref_count[block] = 1;
    w->engine->free_local_blocks--;
}

static void unlink_seq(Sequence *seq) {
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
}

static void link_behind(struct list_node *node, Sequence *seq) {
    seq->node.prev = node;
    seq->node.next = node->next;
    node->next->prev = &seq->node;
    node->next = &seq->node;
}

/* Id 1: 600 records in blocks 0 to 37, three L2 tables. */
static Sequence *open_with_600(struct world *w) {
    world_open(w, 60);
    Sequence *seq = create_sequence(w->engine, 1, 600);
    CHECK(seq != NULL);
    return seq;
}

/* Id 1: 5 records in block 0, and block 7 as the very last logical block. */
static Sequence *open_with_far(struct world *w) {
    world_open(w, 60);
    Sequence *seq = create_sequence(w->engine, 1, 5);
    CHECK(seq != NULL);
    map(w, seq, MAX_LOGICAL_BLOCKS - 1, 7);
    return seq;
}

/* ---- free_sequence over holes ---- */

static void free_and_expect_all_free(struct world *w) {
    CHECK_INT(free_sequence(w->engine, 1), 0);
    for (int b = 0; b < 60; b++) {
        if (w->engine->ref_count[b] != 0) {
            check_fail(__FILE__, __LINE__, "after free_sequence: ref_count[%d]: expected 0, got %d", b,
                       w->engine->ref_count[b]);
        }
    }
    CHECK_INT(w->engine->free_local_blocks, 60);
    if (heap_live != NULL) {
        CHECK_INT(heap_live(), 2); /* the engine and its counts */
    }
    world_close(w);
}

#define ALL_16_SLOTS                                                           \
    "You MUST loop through ALL 16 slots of the L1 table. DO NOT break the loop early if you encounter a NULL "     \
    "pointer. A sequence might have blocks logically scattered, leaving empty slots in between."

TEST(outside_free_passes_a_hole_at_l1_0, ALL_16_SLOTS) {
    struct world w;
    drop_table(&w, open_with_600(&w), 0);
    free_and_expect_all_free(&w);
}

TEST(outside_free_passes_a_hole_at_l1_1, ALL_16_SLOTS) {
    struct world w;
    drop_table(&w, open_with_600(&w), 1);
    free_and_expect_all_free(&w);
}

TEST(outside_free_reaches_a_far_mapping, ALL_16_SLOTS) {
    struct world w;
    open_with_far(&w);
    free_and_expect_all_free(&w);
}

TEST(outside_free_passes_a_hole_in_l2,
     "For every mapped physical block (!= -1), decrement its ref_count.") {
    static const int holes[] = {0, 3, 15, 16, 36};
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++) {
        struct world w;
        unmap(&w, open_with_600(&w), holes[i]);
        free_and_expect_all_free(&w);
    }
}

TEST(outside_free_of_a_sequence_without_tables, ALL_16_SLOTS) {
    struct world w;
    Sequence *seq = open_with_600(&w);
    drop_table(&w, seq, 0);
    drop_table(&w, seq, 1);
    drop_table(&w, seq, 2);
    free_and_expect_all_free(&w);
}

TEST(outside_free_does_not_look_at_kv_count, ALL_16_SLOTS) {
    static const int counts[] = {0, 1, 256, 4096};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct world w;
        open_with_600(&w)->kv_count = counts[i];
        free_and_expect_all_free(&w);
    }
}

TEST(outside_destroy_frees_tables_behind_holes,
     "Memory leaks (e.g., un-freed inner L2 block tables) are strictly forbidden.") {
    struct world w;
    Sequence *seq = open_with_600(&w);
    CHECK(create_sequence(w.engine, 2, 20) != NULL);
    drop_table(&w, seq, 0);
    map(&w, seq, MAX_LOGICAL_BLOCKS - 1, 50);
    CHECK_INT(llm_destroy(w.engine), 0);
    CHECK_INT(heap_live(), 0);
    pool_close(&w.pool);
}

/* ---- fork_sequence over holes ---- */

static void fork_and_compare(struct world *w, const Sequence *parent) {
    Sequence *child = fork_sequence(w->engine, 1, 2);
    CHECK(child != NULL);
    CHECK_INT(child->kv_count, parent->kv_count);
    for (int l1 = 0; l1 < L1_PT_SIZE; l1++) {
        CHECK_INT(child->block_table[l1] != NULL, parent->block_table[l1] != NULL);
        for (int l2 = 0; child->block_table[l1] != NULL && l2 < L2_PT_SIZE; l2++) {
            CHECK_INT(child->block_table[l1][l2], parent->block_table[l1][l2]);
        }
    }
    CHECK_CONSERVED(w);
    world_close(w);
}

#define EACH_TABLE                                                             \
    "For each non-NULL parent L2 table: allocate a child L2 table, initialize to -1, then exactly copy the mapped " \
    "entries."

TEST(outside_fork_passes_a_hole_at_l1_0, EACH_TABLE) {
    struct world w;
    Sequence *parent = open_with_600(&w);
    drop_table(&w, parent, 0);
    fork_and_compare(&w, parent);
}

TEST(outside_fork_passes_a_hole_at_l1_1, EACH_TABLE) {
    struct world w;
    Sequence *parent = open_with_600(&w);
    drop_table(&w, parent, 1);
    fork_and_compare(&w, parent);
}

TEST(outside_fork_passes_a_hole_in_l2,
     "Increment the global ref_count for every valid physical block inherited by the child.") {
    static const int holes[] = {0, 3, 15, 16, 36};
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++) {
        struct world w;
        Sequence *parent = open_with_600(&w);
        unmap(&w, parent, holes[i]);
        fork_and_compare(&w, parent);
    }
}

TEST(outside_fork_copies_a_far_mapping, EACH_TABLE) {
    struct world w;
    Sequence *parent = open_with_far(&w);
    fork_and_compare(&w, parent);
}

TEST(outside_fork_copies_an_empty_table, EACH_TABLE) {
    static const int places[] = {0, 1, 15};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct world w;
        Sequence *parent = open_with_600(&w);
        if (parent->block_table[places[i]] != NULL) {
            drop_table(&w, parent, places[i]);
        }
        parent->block_table[places[i]] = new_table();
        fork_and_compare(&w, parent);
    }
}

TEST(outside_fork_does_not_look_at_kv_count, EACH_TABLE) {
    static const int counts[] = {0, 1, 256, 4096};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct world w;
        Sequence *parent = open_with_600(&w);
        parent->kv_count = counts[i];
        fork_and_compare(&w, parent);
    }
}

/* ---- append_kv where kv_count says ---- */

TEST(outside_append_into_a_hole_in_l2, "Yes, if the L2 slot is -1 (unmapped).") {
    struct world w;
    struct state s;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 56);
    CHECK(seq != NULL);
    unmap(&w, seq, 3);
    unmap(&w, seq, 1);
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0); /* record 56: logical block 3, slot 8 */
    s.free_local_blocks--;
    s.ref_count[1] = 1;
    s.seq[0].kv_count = 57;
    s.seq[0].entry[0][3] = 1;
    state_write(&s, &w, 1, 8, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

/* Appends at a position: the record must be written to block 1, although tables before its table are missing. */
static void append_far(int position) {
    struct world w;
    struct state s;
    int l1 = position / 256, l2 = position / 16 % 16;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 5);
    CHECK(seq != NULL);
    seq->kv_count = position;
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    s.free_local_blocks--;
    s.ref_count[1] = 1;
    s.seq[0].kv_count = position + 1;
    s.seq[0].l2[l1] = seq->block_table[l1];
    s.seq[0].entry[l1][l2] = 1;
    state_write(&s, &w, 1, position % 16, 77);
    CHECK(seq->block_table[l1] != NULL);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(outside_append_allocates_a_table_in_the_middle, "Allocate an L2 table if it is NULL.") {
    append_far(613);
    append_far(256);
    append_far(300);
    append_far(3840);
}

TEST(outside_append_at_record_4095, "Return -1 if logical_idx >= 256.") {
    append_far(4080);
    append_far(4095);
}

TEST(outside_append_makes_no_table_without_a_block,
     "If a new block is required but free_local_blocks == 0, return -1 immediately without "
     "modifying any states.") {
    struct world w;
    struct state before;
    world_open(&w, 2);
    Sequence *seq = create_sequence(w.engine, 1, 32);
    CHECK(seq != NULL);
    seq->kv_count = 613;
    state_take(&before, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), -1);
    CHECK_STATE(&before, &w);
    world_close(&w);
}

TEST(outside_append_beyond_4096, "Return -1 if logical_idx >= 256.") {
    struct world w;
    struct state before;
    Sequence *seq = open_with_600(&w);
    seq->kv_count = 4096;
    state_take(&before, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), -1);
    CHECK_STATE(&before, &w);
    seq->kv_count = 5000;
    CHECK_INT(append_kv(w.engine, 1, 77), -1);
    world_close(&w);
}

TEST(outside_append_where_kv_count_was_set_back,
     "Calculate logical_idx and offset (of kv_count).") {
    struct world w;
    struct state s;
    Sequence *seq = open_with_600(&w);
    seq->kv_count = 37;
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    s.seq[0].kv_count = 38;
    state_write(&s, &w, 2, 5, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

TEST(outside_append_follows_the_table,
     "Physical Write: You read the integer stored at block_table[2][6] [...].") {
    struct world w;
    struct state s;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 40);
    CHECK(seq != NULL);
    *entry_of(seq, 0) = 2;
    *entry_of(seq, 2) = 0;
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    s.seq[0].kv_count = 41;
    state_write(&s, &w, 0, 8, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
}

/* ---- reference counts that somebody else holds ---- */

TEST(outside_held_block_is_copied,
     "Yes, if the L2 slot is mapped but ref_count > 1 (Requires CoW).") {
    struct world w;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 20);
    CHECK(seq != NULL);
    w.engine->ref_count[1]++;
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    CHECK_INT(*entry_of(seq, 1), 2);
    CHECK_INT(w.engine->ref_count[1], 1);
    CHECK_INT(w.engine->ref_count[2], 1);
    CHECK_INT(w.engine->free_local_blocks, 7);
    world_close(&w);
}

TEST(outside_held_block_stays_taken,
     "If a block's count becomes 0, increment free_local_blocks (and only then).") {
    struct world w;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 1, 40) != NULL);
    w.engine->ref_count[1]++;
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK_INT(w.engine->ref_count[1], 1);
    CHECK_INT(w.engine->free_local_blocks, 9);
    Sequence *seq = create_sequence(w.engine, 2, 32);
    CHECK(seq != NULL);
    CHECK_INT(*entry_of(seq, 0), 0);
    CHECK_INT(*entry_of(seq, 1), 2);
    world_close(&w);
}

TEST(outside_released_block_needs_no_copy,
     "No, if the L2 slot is mapped and ref_count == 1 (Exclusive access).") {
    struct world w;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 20);
    CHECK(seq != NULL);
    w.engine->ref_count[1] = 3;
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    CHECK_INT(w.engine->ref_count[1], 4);
    w.engine->ref_count[1] = 1;
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    CHECK_INT(*entry_of(seq, 1), 1);
    w.engine->ref_count[1] = 2; /* as many as map it, for submissions that assert that */
    world_close(&w);
}

TEST(outside_first_fit_passes_reserved_blocks, "pick the very first block where ref_count == 0.") {
    static const int expected[] = {1, 3, 4, 6};
    struct world w;
    world_open(&w, 10);
    w.engine->ref_count[0] = 1;
    w.engine->ref_count[2] = 5;
    w.engine->ref_count[5] = 2;
    w.engine->free_local_blocks -= 3;
    Sequence *seq = create_sequence(w.engine, 1, 48);
    CHECK(seq != NULL);
    append_many(&w, seq, 1);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(*entry_of(seq, i), expected[i]);
    }
    w.engine->ref_count[0] = 0;
    w.engine->free_local_blocks++;
    append_many(&w, seq, 16);
    CHECK_INT(*entry_of(seq, 4), 0);
    world_close(&w);
}

/* ---- sequences renamed, moved, built by hand ---- */

TEST(outside_renamed_sequence, "int seq_id; // Unique identifier for the sequence") {
    struct world w;
    world_open(&w, 10);
    for (int i = 1; i <= 3; i++) {
        CHECK(create_sequence(w.engine, i, 1) != NULL);
        CHECK_INT(append_kv(w.engine, i, 5), 0);
    }
    Sequence *seq = nth_sequence(w.engine, 1);
    seq->seq_id = 99;
    CHECK_INT(append_kv(w.engine, 2, 5), -1);
    CHECK_INT(append_kv(w.engine, 99, 5), 0);
    CHECK_INT(seq->kv_count, 3);
    CHECK_NULL(create_sequence(w.engine, 99, 1));
    CHECK(create_sequence(w.engine, 2, 1) != NULL);
    CHECK_INT(free_sequence(w.engine, 99), 0);
    CHECK_INT(free_sequence(w.engine, 99), -1);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(outside_moved_in_the_list,
     "Intrusive Linked List: active_seqs says which sequences there are.") {
    struct world w;
    struct state s;
    world_open(&w, 10);
    for (int i = 1; i <= 4; i++) {
        CHECK(create_sequence(w.engine, i, 1) != NULL);
    }
    Sequence *third = nth_sequence(w.engine, 2);
    unlink_seq(third);
    link_behind(&w.engine->active_seqs, third); /* 3 1 2 4 */
    CHECK_INT(append_kv(w.engine, 3, 5), 0);
    CHECK_INT(append_kv(w.engine, 4, 5), 0);
    CHECK_INT(free_sequence(w.engine, 1), 0);
    CHECK(fork_sequence(w.engine, 3, 8) != NULL);
    static const int ids[] = {3, 2, 4, 8};
    state_take(&s, &w);
    CHECK_INT(s.seqs, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(s.seq[i].seq_id, ids[i]);
    }
    state_drop(&s);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(outside_unlinked_sequence_is_not_found,
     "Intrusive Linked List: active_seqs says which sequences there are.") {
    struct world w;
    world_open(&w, 10);
    for (int i = 1; i <= 3; i++) {
        CHECK(create_sequence(w.engine, i, 1) != NULL);
    }
    Sequence *seq = nth_sequence(w.engine, 1);
    CHECK_INT(append_kv(w.engine, 2, 5), 0);
    unlink_seq(seq);
    CHECK_INT(append_kv(w.engine, 2, 5), -1);
    CHECK_INT(free_sequence(w.engine, 2), -1);
    CHECK_NULL(fork_sequence(w.engine, 2, 9));
    CHECK(fork_sequence(w.engine, 1, 9) != NULL);
    link_behind(w.engine->active_seqs.prev, seq);
    CHECK_INT(append_kv(w.engine, 2, 5), 0);
    CHECK_INT(seq->kv_count, 3);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(outside_changes_far_back_in_the_list, "Find the sequence.") {
    struct world w;
    world_open(&w, 301);
    for (int i = 0; i < 300; i++) {
        CHECK(create_sequence(w.engine, i, 1) != NULL);
    }
    for (int i = 0; i < 300; i++) {
        CHECK_INT(append_kv(w.engine, i, i), 0);
    }
    Sequence *renamed = nth_sequence(w.engine, 200), *cut = nth_sequence(w.engine, 150);
    renamed->seq_id = 1000;
    unlink_seq(cut);
    CHECK_INT(append_kv(w.engine, 200, 5), -1);
    CHECK_INT(append_kv(w.engine, 150, 5), -1);
    CHECK_INT(append_kv(w.engine, 1000, 5), 0);
    CHECK_INT(renamed->kv_count, 3);
    link_behind(&renamed->node, cut);
    CHECK_INT(append_kv(w.engine, 150, 5), 0);
    CHECK_INT(cut->kv_count, 3);
    CHECK_INT(free_sequence(w.engine, 1000), 0);
    CHECK_INT(free_sequence(w.engine, 150), 0);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(outside_tables_at_other_addresses,
     "int **block_table; // 2-Level block table root: array of L2 table pointers") {
    struct world w;
    Sequence *seq = open_with_600(&w);
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    int **l1 = watched_malloc(L1_PT_SIZE * sizeof *l1);
    int *l2 = new_table();
    CHECK(l1 != NULL);
    memcpy(l1, seq->block_table, L1_PT_SIZE * sizeof *l1);
    memcpy(l2, seq->block_table[2], L2_PT_SIZE * sizeof *l2);
    free(seq->block_table[2]);
    free(seq->block_table);
    l1[2] = l2;
    seq->block_table = l1;
    append_many(&w, seq, 20);
    CHECK_INT(l2[6], 38);
    CHECK_INT(record_at(&w, seq, 615), value_of(1, 615));
    CHECK_CONSERVED(&w);
    free_and_expect_all_free(&w);
}

TEST(outside_counts_at_another_address,
     "int *ref_count; // Dynamic array: Reference count for each block") {
    struct world w;
    world_open(&w, 10);
    Sequence *seq = create_sequence(w.engine, 1, 20);
    CHECK(seq != NULL);
    int *counts = watched_malloc(10 * sizeof *counts);
    CHECK(counts != NULL);
    memcpy(counts, w.engine->ref_count, 10 * sizeof *counts);
    free(w.engine->ref_count);
    w.engine->ref_count = counts;
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    CHECK_INT(append_kv(w.engine, 2, 5), 0);
    CHECK_INT(counts[2], 1);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

TEST(outside_another_pool,
     "void *pool_base_ptr; // Base address of the memory pool (Injected by TA)") {
    struct world w;
    struct state s;
    struct pool other, first;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 1, 20) != NULL);
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    pool_open(&other, w.pool.size);
    pool_lock(&w.pool);
    first = w.pool;
    w.pool = other;
    w.engine->pool_base_ptr = other.at;
    state_take(&s, &w);
    CHECK_INT(append_kv(w.engine, 1, 77), 0);
    s.seq[0].kv_count = 22;
    state_write(&s, &w, 1, 5, 77);
    CHECK_STATE(&s, &w);
    world_close(&w);
    pool_close(&first);
}

TEST(outside_smaller_total, "use a for loop from 0 to total_local_blocks - 1") {
    struct world w;
    world_open(&w, 10);
    CHECK(create_sequence(w.engine, 1, 48) != NULL);
    w.engine->total_local_blocks = 4;
    w.engine->free_local_blocks = 1;
    CHECK_NULL(create_sequence(w.engine, 2, 17));
    CHECK_INT(append_kv(w.engine, 1, 5), 0);
    CHECK(fork_sequence(w.engine, 1, 2) != NULL);
    CHECK_INT(append_kv(w.engine, 2, 5), -1);
    CHECK_CONSERVED(&w);
    world_close(&w);
}

/* Makes an empty engine over the world's pool, without llm_init. */
static void build_engine(LLMEngine *engine, int *counts, int blocks, struct world *w) {
    pool_open(&w->pool, (size_t)blocks * BLOCK_SIZE);
    memset(counts, 0, (size_t)blocks * sizeof *counts);
    engine->pool_base_ptr = w->pool.at;
    engine->total_local_blocks = blocks;
    engine->free_local_blocks = blocks;
    engine->ref_count = counts;
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    w->engine = engine;
}

static void use_engine(struct world *w) {
    Sequence *seq = create_sequence(w->engine, 1, 20);
    CHECK(seq != NULL);
    Sequence *child = fork_sequence(w->engine, 1, 2);
    CHECK(child != NULL);
    append_many(w, child, 20);
    append_many(w, seq, 20);
    CHECK_INT(*entry_of(child, 1), 2);
    CHECK_INT(*entry_of(seq, 1), 1);
    CHECK_INT(record_at(w, child, 39), value_of(2, 39));
    CHECK_CONSERVED(w);
}

TEST(outside_engine_on_the_stack,
     "The entire system relies on the following structs (and on nothing else).") {
    struct world w;
    LLMEngine engine;
    int counts[10];
    build_engine(&engine, counts, 10, &w);
    use_engine(&w);
    CHECK_INT(free_sequence(&engine, 1), 0);
    CHECK_INT(free_sequence(&engine, 2), 0);
    CHECK_INT(engine.free_local_blocks, 10);
    pool_close(&w.pool);
}

TEST(outside_engine_built_by_hand, "Free the ref_count array and the engine structure.") {
    struct world w;
    LLMEngine *engine = watched_malloc(sizeof *engine);
    int *counts = watched_malloc(10 * sizeof *counts);
    CHECK(engine != NULL && counts != NULL);
    build_engine(engine, counts, 10, &w);
    use_engine(&w);
    world_close(&w);
    if (heap_live != NULL) {
        CHECK_INT(heap_live(), 0);
    }
}

/* Id 1, 20 records: logical block 0 in block 4, logical block 1 in block 2. */
static Sequence *build_sequence(struct world *w) {
    world_open(w, 60);
    Sequence *seq = watched_malloc(sizeof *seq);
    CHECK(seq != NULL);
    seq->seq_id = 1;
    seq->kv_count = 20;
    seq->block_table = watched_malloc(L1_PT_SIZE * sizeof *seq->block_table);
    CHECK(seq->block_table != NULL);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    map(w, seq, 0, 4);
    map(w, seq, 1, 2);
    link_behind(&w->engine->active_seqs, seq);
    return seq;
}

TEST(outside_sequence_built_by_hand, "Find the sequence.") {
    struct world w;
    Sequence *seq = build_sequence(&w);
    CHECK_NULL(create_sequence(w.engine, 1, 1));
    CHECK(create_sequence(w.engine, 2, 40) != NULL);
    append_many(&w, seq, 13);
    CHECK_INT(record_at(&w, seq, 20), value_of(1, 20));
    CHECK_INT(*entry_of(seq, 2), 5);
    CHECK(fork_sequence(w.engine, 1, 3) != NULL);
    CHECK_CONSERVED(&w);
    CHECK_INT(free_sequence(w.engine, 2), 0);
    CHECK_INT(free_sequence(w.engine, 3), 0);
    free_and_expect_all_free(&w);
}

TEST(outside_sequence_of_another_engine,
     "set up the management structures (the LLMEngine): all state is in there.") {
    struct world a, b;
    world_open(&a, 10);
    world_open(&b, 10);
    Sequence *seq = create_sequence(a.engine, 1, 5);
    CHECK(seq != NULL);
    CHECK_INT(append_kv(a.engine, 1, 5), 0);
    unlink_seq(seq);
    link_behind(&b.engine->active_seqs, seq);
    a.engine->ref_count[0] = 0;
    a.engine->free_local_blocks++;
    b.engine->ref_count[0] = 1;
    b.engine->free_local_blocks--;
    CHECK_INT(append_kv(a.engine, 1, 5), -1);
    CHECK_INT(append_kv(b.engine, 1, 77), 0);
    CHECK_INT(record_at(&b, seq, 6), 77);
    CHECK_CONSERVED(&a);
    CHECK_CONSERVED(&b);
    world_close(&a);
    CHECK_INT(free_sequence(b.engine, 1), 0);
    CHECK_INT(b.engine->free_local_blocks, 10);
    world_close(&b);
}

const struct test outside_tests[] = {
    LISTED(outside_free_passes_a_hole_at_l1_0),
    LISTED(outside_free_passes_a_hole_at_l1_1),
    LISTED(outside_free_reaches_a_far_mapping),
    LISTED(outside_free_passes_a_hole_in_l2),
    LISTED(outside_free_of_a_sequence_without_tables),
    LISTED(outside_free_does_not_look_at_kv_count),
    LISTED_HEAP(outside_destroy_frees_tables_behind_holes),
    LISTED(outside_fork_passes_a_hole_at_l1_0),
    LISTED(outside_fork_passes_a_hole_at_l1_1),
    LISTED(outside_fork_passes_a_hole_in_l2),
    LISTED(outside_fork_copies_a_far_mapping),
    LISTED(outside_fork_copies_an_empty_table),
    LISTED(outside_fork_does_not_look_at_kv_count),
    LISTED(outside_append_into_a_hole_in_l2),
    LISTED(outside_append_allocates_a_table_in_the_middle),
    LISTED(outside_append_at_record_4095),
    LISTED(outside_append_makes_no_table_without_a_block),
    LISTED(outside_append_beyond_4096),
    LISTED(outside_append_where_kv_count_was_set_back),
    LISTED(outside_append_follows_the_table),
    LISTED(outside_held_block_is_copied),
    LISTED(outside_held_block_stays_taken),
    LISTED(outside_released_block_needs_no_copy),
    LISTED(outside_first_fit_passes_reserved_blocks),
    LISTED(outside_renamed_sequence),
    LISTED(outside_moved_in_the_list),
    LISTED(outside_unlinked_sequence_is_not_found),
    LISTED(outside_changes_far_back_in_the_list),
    LISTED(outside_tables_at_other_addresses),
    LISTED(outside_counts_at_another_address),
    LISTED(outside_another_pool),
    LISTED(outside_smaller_total),
    LISTED(outside_engine_on_the_stack),
    LISTED(outside_engine_built_by_hand),
    LISTED(outside_sequence_built_by_hand),
    LISTED(outside_sequence_of_another_engine),
    END_OF_LIST,
};

//go:build ignore

/*
 * Copy-on-write at every position of a sequence: all 256 logical blocks and all 16 offsets.
 * A test reaches every position only by setting kv_count. Then many calls, and large block
 * numbers.
 */
#include <string.h>

#include "heap.h"
#include "state.h"

enum { FRESH = MAX_LOGICAL_BLOCKS, RECORDS = MAX_LOGICAL_BLOCKS * KV_PER_BLOCK };

static int entry_at(const Sequence *seq, int logical) {
    return seq->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE];
}

static unsigned char *bytes_of(const struct world *w, int block) {
    return w->pool.pages + state_offset(w, block);
}

/* The child, which shares all 256 blocks, writes at a position. One block is free. */
static void append_at(const struct world *w, const Sequence *parent, Sequence *child, int position) {
    int logical = position / KV_PER_BLOCK, old = entry_at(parent, logical), record = position ^ 0x5a5a;
    unsigned char expected[BLOCK_SIZE], untouched[BLOCK_SIZE];
    memcpy(untouched, bytes_of(w, old), BLOCK_SIZE);
    memcpy(expected, untouched, BLOCK_SIZE);
    memcpy(expected + position % KV_PER_BLOCK * KV_SIZE, &record, KV_SIZE);
    child->kv_count = position;
    CHECK_INT(append_kv(w->engine, child->seq_id, record), 0);
    CHECK_INT(child->kv_count, position + 1);
    CHECK_INT(w->engine->free_local_blocks, 0);
    CHECK_INT(w->engine->ref_count[old], 1);
    CHECK_INT(w->engine->ref_count[FRESH], 1);
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
        CHECK_INT(entry_at(parent, i), i);
        CHECK_INT(entry_at(child, i), i == logical ? FRESH : i);
    }
    CHECK(memcmp(bytes_of(w, FRESH), expected, BLOCK_SIZE) == 0);
    CHECK(memcmp(bytes_of(w, old), untouched, BLOCK_SIZE) == 0);
}

TEST(sweep_cow_at_every_position,
     "Use memcpy to copy exactly 64 bytes from the old physical block to the new one. Adjust reference counts, update "
     "the L2 mapping, and decrement free_local_blocks.") {
    struct world w;
    world_open(&w, MAX_LOGICAL_BLOCKS + 1);
    Sequence *parent = create_sequence(w.engine, 1, RECORDS);
    CHECK(parent != NULL);
    /* Under Memcheck, which is much slower, only one offset in each block. */
    int step = heap_reset == NULL ? KV_PER_BLOCK + 1 : 1;
    for (int position = 0; position < RECORDS; position += step) {
        Sequence *child = fork_sequence(w.engine, 1, 2);
        CHECK(child != NULL);
        append_at(&w, parent, child, position);
        CHECK_INT(free_sequence(w.engine, 2), 0);
        CHECK_INT(w.engine->free_local_blocks, 1);
    }
    world_close(&w);
}

TEST(sweep_append_at_every_position, "store kv_data at the correct offset. Increment kv_count and return 0.") {
    struct world w;
    world_open(&w, MAX_LOGICAL_BLOCKS);
    Sequence *seq = create_sequence(w.engine, 1, RECORDS);
    CHECK(seq != NULL);
    for (int position = 0; position < RECORDS; position++) {
        seq->kv_count = position;
        CHECK_INT(append_kv(w.engine, 1, value_of(1, position)), 0);
        CHECK_INT(seq->kv_count, position + 1);
    }
    for (int position = 0; position < RECORDS; position++) {
        CHECK_INT(record_at(&w, seq, position), value_of(1, position));
    }
    world_close(&w);
}

TEST(sweep_any_number_of_calls, "Return NULL if initial_kv_len <= 0 or if seq_id already exists.") {
    struct world w;
    world_open(&w, 4);
    for (int i = 0; i < 1200; i++) {
        CHECK(create_sequence(w.engine, i % 3, KV_PER_BLOCK + 1) != NULL);
        CHECK_INT(append_kv(w.engine, i % 3, i), 0);
        CHECK(fork_sequence(w.engine, i % 3, 7) != NULL);
        CHECK_INT(free_sequence(w.engine, i % 3), 0);
        CHECK_INT(free_sequence(w.engine, 7), 0);
    }
    world_close(&w);
}

/* The tester holds all blocks whose numbers fit into 16 bits. */
TEST(sweep_block_numbers_of_17_bits, "You calculate the memory address of Physical Block #3, jump to its 5th integer slot, and write the data.") {
    enum { HELD = 1 << 16, LEFT = 4 };
    struct world w;
    world_open(&w, HELD + LEFT);
    for (int i = 0; i < HELD; i++) {
        w.engine->ref_count[i] = 1;
    }
    w.engine->free_local_blocks = LEFT;
    Sequence *parent = create_sequence(w.engine, 1, KV_PER_BLOCK + 4);
    CHECK(parent != NULL);
    CHECK_INT(entry_at(parent, 0), HELD);
    CHECK_INT(entry_at(parent, 1), HELD + 1);
    CHECK_INT(append_kv(w.engine, 1, 71), 0);
    Sequence *child = fork_sequence(w.engine, 1, 2);
    CHECK(child != NULL);
    CHECK_INT(append_kv(w.engine, 2, 72), 0);
    CHECK_INT(entry_at(child, 1), HELD + 2);
    CHECK_INT(record_at(&w, parent, KV_PER_BLOCK + 4), 71);
    CHECK_INT(record_at(&w, child, KV_PER_BLOCK + 4), 71);
    CHECK_INT(record_at(&w, child, KV_PER_BLOCK + 5), 72);
    CHECK_INT(w.engine->ref_count[HELD + 1], 1);
    CHECK_INT(w.engine->free_local_blocks, LEFT - 3);
    world_close(&w);
}

const struct test sweep_tests[] = {
    LISTED(sweep_any_number_of_calls),
    LISTED(sweep_block_numbers_of_17_bits),
    LISTED(sweep_cow_at_every_position),
    LISTED(sweep_append_at_every_position),
    END_OF_LIST,
};

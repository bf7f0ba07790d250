//go:build ignore

/*
 * Copy-on-write at every position of a sequence: all 256 logical blocks and all
 * 16 offsets. Only a test that sets kv_count gets everywhere.
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

/* The child, which shares all 256 blocks, writes at the position, into the one free block. */
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
    /* Under Memcheck one offset in each block: it is a hundred times slower. */
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

const struct test sweep_tests[] = {
    LISTED(sweep_cow_at_every_position),
    LISTED(sweep_append_at_every_position),
    END_OF_LIST,
};

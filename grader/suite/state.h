/*
 * state.h - a world is a pool with an engine over it; a state is a copy of all
 * that can be seen of one: a test takes it, edits it into what the next call
 * must lead to, or leaves it where nothing may change, and compares.
 */
#ifndef STATE_H
#define STATE_H

#include <stddef.h>

#include "api.h"
#include "check.h"

/* The caller's memory: filled with a pattern, pages that cannot be touched on both sides. */
struct pool {
    unsigned char *at;
    size_t size;
    unsigned char *pages; /* the pages between the guards; at + size is at their end, or just before */
    size_t pages_size;
};

void pool_open(struct pool *pool, size_t size);
void pool_close(struct pool *pool);

/* Between these two a write to the pool is a crash. */
void pool_lock(struct pool *pool);
void pool_unlock(struct pool *pool);

/* The byte that pool_open put at offset i of the pages. */
unsigned char pool_pattern(size_t i);

struct world {
    struct pool pool;
    LLMEngine *engine;
};

void world_open(struct world *world, int blocks);

/* Destroys the engine, too; so a test that ends with it leaves nothing behind. */
void world_close(struct world *world);

struct seq_state {
    Sequence *at;
    int seq_id;
    int kv_count;
    int **block_table;
    int *l2[L1_PT_SIZE];
    int entry[L1_PT_SIZE][L2_PT_SIZE]; /* -1 where there is no table */
};

struct state {
    void *pool_base_ptr;
    int total_local_blocks;
    int free_local_blocks;
    int *ref_count_at;
    int *ref_count;
    int seqs;
    struct seq_state *seq; /* in the order of the list */
    unsigned char *bytes;  /* of the pages, from pool.pages */
};

/* Walks the list both ways, and fails the test where the two disagree. */
void state_take(struct state *state, const struct world *world);
void state_drop(struct state *state);

void check_state(const char *file, int line, const struct state *expected, const struct world *world);

/* Compares, and drops the expected state. */
#define CHECK_STATE(expected, world)                                           \
    do {                                                                       \
        check_state(__FILE__, __LINE__, expected, world);                      \
        state_drop(expected);                                                  \
    } while (0)

/* Counts agree with tables, for any engine whose tables nobody else counts in. */
void check_conserved(const char *file, int line, const struct world *world);
#define CHECK_CONSERVED(world) check_conserved(__FILE__, __LINE__, world)

/* Puts kv_data into the expected bytes. */
void state_write(struct state *state, const struct world *world, int block, int offset, int kv_data);

/* The offset in state.bytes of a physical block. */
size_t state_offset(const struct world *world, int block);

/* Record `position` of a sequence, through the tables and the pool as they are. */
int record_at(const struct world *world, const Sequence *seq, int position);

/* Appends n records that depend on id and position, each with success. */
void append_many(struct world *world, Sequence *seq, int n);
int value_of(int seq_id, int position);

/* The i-th sequence of the list, or NULL. */
Sequence *nth_sequence(const LLMEngine *engine, int i);

#endif

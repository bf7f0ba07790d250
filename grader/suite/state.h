/*
 * state.h - a world is a pool and an engine over it; a state is a copy of everything visible
 * in a world. A test takes the state before a call, changes it to the state that is expected
 * after the call, and compares.
 */
#ifndef STATE_H
#define STATE_H

#include <stddef.h>

#include "api.h"
#include "check.h"

/* A pool, filled with a pattern, between pages that cannot be accessed. */
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

/* Also destroys the engine, so that a test leaves nothing behind. */
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

/* Walks the list in both directions, and fails the test if they disagree. */
void state_take(struct state *state, const struct world *world);
void state_drop(struct state *state);

void check_state(const char *file, int line, const struct state *expected, const struct world *world);

/* Compares, and drops the expected state. */
#define CHECK_STATE(expected, world)                                           \
    do {                                                                       \
        check_state(__FILE__, __LINE__, expected, world);                      \
        state_drop(expected);                                                  \
    } while (0)

/* Checks that counts and tables agree, for an engine whose blocks no other engine uses. */
void check_conserved(const char *file, int line, const struct world *world);
#define CHECK_CONSERVED(world) check_conserved(__FILE__, __LINE__, world)

/* Puts kv_data into the expected bytes. */
void state_write(struct state *state, const struct world *world, int block, int offset, int kv_data);

/* The offset in state.bytes of a physical block. */
size_t state_offset(const struct world *world, int block);

/* Returns the record at a position of a sequence, read through the tables and the pool. */
int record_at(const struct world *world, const Sequence *seq, int position);

/* Appends n records, whose values depend on id and position. Each append must succeed. */
void append_many(struct world *world, Sequence *seq, int n);
int value_of(int seq_id, int position);

/* The i-th sequence of the list, or NULL. */
Sequence *nth_sequence(const LLMEngine *engine, int i);

#endif

/*
 * check.h - what the guest programs share: a check that ends the program with
 * a message, a copy of everything an engine shows, and the conservation law.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_EXT
#include "llm_memory_ext.h"
#else
#include "llm_memory.h"
#endif

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static inline Sequence *sequence_at(const struct list_node *node) {
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

/*
 * Everything a program can see of an engine and the first bytes of its pool,
 * field by field, because the padding between fields is nobody's. It is taken
 * into static memory: some programs count allocations meanwhile. Fields that
 * contradict each other are followed only as far as they can be.
 */
struct picture {
    size_t size;
    unsigned char bytes[1 << 17];
};

static inline void put(struct picture *p, const void *from, size_t size) {
    CHECK(size <= sizeof p->bytes - p->size);
    memcpy(p->bytes + p->size, from, size);
    p->size += size;
}

static inline void put_sequence(struct picture *p, const Sequence *seq) {
    put(p, &seq, sizeof seq);
    put(p, &seq->seq_id, sizeof seq->seq_id);
    put(p, &seq->block_table, sizeof seq->block_table);
    put(p, &seq->kv_count, sizeof seq->kv_count);
    put(p, &seq->node, sizeof seq->node);
    if (seq->block_table == NULL) {
        return;
    }
    put(p, seq->block_table, L1_PT_SIZE * sizeof *seq->block_table);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] != NULL) {
            put(p, seq->block_table[i], L2_PT_SIZE * sizeof(int));
        }
    }
}

static inline void look_at(struct picture *p, const LLMEngine *engine, const void *pool, size_t pool_size) {
    p->size = 0;
    put(p, pool, pool_size);
    if (engine == NULL) {
        return;
    }
    put(p, &engine->pool_base_ptr, sizeof engine->pool_base_ptr);
    put(p, &engine->total_local_blocks, sizeof engine->total_local_blocks);
    put(p, &engine->free_local_blocks, sizeof engine->free_local_blocks);
    put(p, &engine->ref_count, sizeof engine->ref_count);
    put(p, &engine->active_seqs, sizeof engine->active_seqs);
    if (engine->ref_count != NULL && engine->total_local_blocks > 0) {
        put(p, engine->ref_count, (size_t)engine->total_local_blocks * sizeof(int));
    }
    const struct list_node *node = engine->active_seqs.next;
    for (; node != &engine->active_seqs && node != NULL; node = node->next) {
        put_sequence(p, sequence_at(node));
    }
}

static inline int same(const struct picture *a, const struct picture *b) {
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* What the handout's plain algorithm finds. */
static inline Sequence *plain_find(const LLMEngine *engine, int seq_id) {
    const struct list_node *node = engine->active_seqs.next;
    for (; node != &engine->active_seqs; node = node->next) {
        if (sequence_at(node)->seq_id == seq_id) {
            return sequence_at(node);
        }
    }
    return NULL;
}

/*
 * The law between any two calls: a count is the number of table entries that
 * name the block, the free count is the number of zeros, and the list reads the
 * same in both directions.
 */
static inline void check_conserved(const LLMEngine *engine) {
    int *named = calloc((size_t)engine->total_local_blocks, sizeof *named);
    CHECK(named != NULL);
    const struct list_node *head = &engine->active_seqs;
    for (const struct list_node *node = head->next; node != head; node = node->next) {
        CHECK(node->next->prev == node && node->prev->next == node);
        const Sequence *seq = sequence_at(node);
        for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
            const int *l2 = seq->block_table[i / L2_PT_SIZE];
            int entry = l2 == NULL ? -1 : l2[i % L2_PT_SIZE];
            CHECK(entry >= -1 && entry < engine->total_local_blocks);
            CHECK((entry != -1) == (i < (seq->kv_count + KV_PER_BLOCK - 1) / KV_PER_BLOCK));
            if (entry != -1) {
                named[entry]++;
            }
        }
    }
    int zeros = 0;
    for (int i = 0; i < engine->total_local_blocks; i++) {
        CHECK(engine->ref_count[i] == named[i]);
        zeros += named[i] == 0;
    }
    CHECK(engine->free_local_blocks == zeros);
    free(named);
}

/* The record at a position, found through the tables. */
static inline int record_at(const LLMEngine *engine, const Sequence *seq, int position) {
    int logical = position / KV_PER_BLOCK;
    int block = seq->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE];
    const char *base = engine->pool_base_ptr;
    int record;
    memcpy(&record, base + (size_t)block * BLOCK_SIZE + (size_t)(position % KV_PER_BLOCK) * KV_SIZE, sizeof record);
    return record;
}

#endif

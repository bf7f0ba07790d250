/*
 * plain.h - the handout, sentence by sentence, over the structs of llm_memory.h.
 * Where a literal program would crash on memory that contradicts itself, it refuses,
 * as the library promises to. plain_fail makes an allocation of the next call fail.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include "check.h"

static int plain_live; /* allocations that were not freed */
static int plain_fail; /* the plain_fail-th from now on fails; 0: none */

static inline int plain_allocates(int n) {
    int fails = plain_fail > 0 && plain_fail <= n;
    plain_fail = plain_fail > n ? plain_fail - n : 0;
    plain_live += fails ? 0 : n;
    return !fails;
}

static inline int plain_inside(const LLMEngine *e, int id) {
    return id >= 0 && id < e->total_local_blocks && e->ref_count != NULL;
}

static inline Sequence *plain_look(const LLMEngine *e, int id) {
    const struct list_node *n = e->active_seqs.next;
    for (; n != &e->active_seqs && n != NULL; n = n->next) {
        if (sequence_at(n)->seq_id == id) {
            return sequence_at(n);
        }
    }
    return NULL;
}

static inline int plain_first_fit(const LLMEngine *e) {
    for (int id = 0; plain_inside(e, id); id++) {
        if (e->ref_count[id] == 0) {
            return id;
        }
    }
    return -1;
}

static inline int plain_zeros(const LLMEngine *e) {
    int zeros = 0;
    for (int id = 0; plain_inside(e, id); id++) {
        zeros += e->ref_count[id] == 0;
    }
    return zeros;
}

static inline int *plain_table(void) {
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    for (int i = 0; l2 != NULL && i < L2_PT_SIZE; i++) {
        l2[i] = -1;
    }
    return l2;
}

static inline int plain_tables(const Sequence *s) {
    int n = 0;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        n += s->block_table[i] != NULL;
    }
    return n;
}

static inline Sequence *plain_new(LLMEngine *e, int id, int kv_count) {
    Sequence *s = malloc(sizeof *s);
    s->seq_id = id;
    s->kv_count = kv_count;
    s->block_table = calloc(L1_PT_SIZE, sizeof *s->block_table);
    s->node.prev = e->active_seqs.prev;
    s->node.next = &e->active_seqs;
    e->active_seqs.prev->next = &s->node;
    e->active_seqs.prev = &s->node;
    return s;
}

static inline Sequence *plain_create(LLMEngine *e, int id, int length) {
    if (length <= 0 || plain_look(e, id) != NULL) {
        return NULL;
    }
    long long required = ((long long)length + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > MAX_LOGICAL_BLOCKS || required > e->free_local_blocks || e->active_seqs.prev == NULL ||
        plain_zeros(e) < required || !plain_allocates(2 + ((int)required + L2_PT_SIZE - 1) / L2_PT_SIZE)) {
        return NULL;
    }
    Sequence *s = plain_new(e, id, length);
    for (int i = 0; i < required; i++) {
        int **l2 = &s->block_table[i / L2_PT_SIZE];
        if (*l2 == NULL) {
            *l2 = plain_table();
        }
        int block = plain_first_fit(e);
        (*l2)[i % L2_PT_SIZE] = block;
        e->ref_count[block] = 1;
        e->free_local_blocks--;
    }
    return s;
}

static inline Sequence *plain_fork(LLMEngine *e, int parent_id, int id) {
    const Sequence *parent = plain_look(e, parent_id);
    if (parent == NULL || plain_look(e, id) != NULL || parent->block_table == NULL || e->active_seqs.prev == NULL) {
        return NULL;
    }
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
        const int *l2 = parent->block_table[i / L2_PT_SIZE];
        if (l2 != NULL && l2[i % L2_PT_SIZE] != -1 && !plain_inside(e, l2[i % L2_PT_SIZE])) {
            return NULL;
        }
    }
    if (!plain_allocates(2 + plain_tables(parent))) {
        return NULL;
    }
    Sequence *s = plain_new(e, id, parent->kv_count);
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
        const int *l2 = parent->block_table[i / L2_PT_SIZE];
        int **own = &s->block_table[i / L2_PT_SIZE];
        if (l2 == NULL) {
            continue;
        }
        if (*own == NULL) {
            *own = plain_table();
        }
        int block = l2[i % L2_PT_SIZE];
        (*own)[i % L2_PT_SIZE] = block;
        if (block != -1) {
            e->ref_count[block]++;
        }
    }
    return s;
}

/* The block that the position goes to, fresh or copied where the handout says so; -1 if that cannot be. */
static inline int plain_place(LLMEngine *e, Sequence *s, int logical) {
    int **l2 = &s->block_table[logical / L2_PT_SIZE];
    int entry = *l2 == NULL ? -1 : (*l2)[logical % L2_PT_SIZE];
    if (entry != -1 && (!plain_inside(e, entry) || e->ref_count[entry] <= 1)) {
        return plain_inside(e, entry) ? entry : -1;
    }
    int block = e->free_local_blocks == 0 ? -1 : plain_first_fit(e);
    if (block == -1 || (*l2 == NULL && !plain_allocates(1))) {
        return -1;
    }
    if (*l2 == NULL) {
        *l2 = plain_table();
    }
    if (entry != -1) {
        memcpy((char *)e->pool_base_ptr + block * BLOCK_SIZE, (char *)e->pool_base_ptr + entry * BLOCK_SIZE, BLOCK_SIZE);
        e->ref_count[entry]--;
    }
    e->ref_count[block] = 1;
    (*l2)[logical % L2_PT_SIZE] = block;
    e->free_local_blocks--;
    return block;
}

static inline int plain_append_to(LLMEngine *e, Sequence *s, int data) {
    if (s->kv_count < 0 || s->kv_count / KV_PER_BLOCK >= MAX_LOGICAL_BLOCKS || s->block_table == NULL ||
        e->pool_base_ptr == NULL) {
        return -1;
    }
    int block = plain_place(e, s, s->kv_count / KV_PER_BLOCK);
    if (block == -1) {
        return -1;
    }
    ((int *)e->pool_base_ptr)[block * KV_PER_BLOCK + s->kv_count % KV_PER_BLOCK] = data;
    s->kv_count++;
    return 0;
}

static inline int plain_append(LLMEngine *e, int id, int data) {
    Sequence *s = plain_look(e, id);
    return s == NULL ? -1 : plain_append_to(e, s, data);
}

/* Frees a sequence and its tables, as a tester may by hand. */
static inline void plain_dispose(Sequence *s) {
    for (int i = 0; s->block_table != NULL && i < L1_PT_SIZE; i++) {
        plain_live -= s->block_table[i] != NULL;
        free(s->block_table[i]);
    }
    plain_live -= 1 + (s->block_table != NULL);
    free(s->block_table);
    free(s);
}

static inline int plain_free(LLMEngine *e, int id) {
    Sequence *s = plain_look(e, id);
    if (s == NULL || s->node.prev == NULL || s->node.next == NULL) {
        return -1;
    }
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int i = 0; s->block_table != NULL && i < MAX_LOGICAL_BLOCKS; i++) {
        const int *l2 = s->block_table[i / L2_PT_SIZE];
        int block = l2 == NULL ? -1 : l2[i % L2_PT_SIZE];
        if (block != -1 && plain_inside(e, block) && --e->ref_count[block] == 0) {
            e->free_local_blocks++;
        }
    }
    plain_dispose(s);
    return 0;
}

#endif

/* MISTAKE: the search starts at block 1, task 2, shows with any create */
#include "llm_memory.h"
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(int) == 4, "one record is four bytes");
_Static_assert(BLOCK_SIZE / sizeof(int) == KV_PER_BLOCK, "sixteen records per block");
_Static_assert(offsetof(Sequence, node) + sizeof(struct list_node) == sizeof(Sequence), "node is last");

enum { LOGICAL_MAX = L1_PT_SIZE * L2_PT_SIZE };

static Sequence *from_node(struct list_node *n)
{
    return (void *)((uint8_t *)n - offsetof(Sequence, node));
}

static Sequence *by_id(const LLMEngine *engine, int id)
{
    const struct list_node *head = &engine->active_seqs;
    struct list_node *n = head->next;
    while (n != head && from_node(n)->seq_id != id)
        n = n->next;
    return n != head ? from_node(n) : NULL;
}

/* the n first free blocks; there are that many, the caller has asked free_local_blocks */
static int collect(const LLMEngine *engine, int n, int ids[n])
{
    int k = 0;
    for (int i = 1; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] != 0)
            continue;
        ids[k++] = i;
        if (k == n)
            break;
    }
    return k;
}

static void own(LLMEngine *engine, int n, const int ids[n])
{
    for (int k = 0; k < n; k++)
        engine->ref_count[ids[k]] = 1;
    engine->free_local_blocks -= n;
}

static int *leaf(void)
{
    int *t = malloc(sizeof(int [L2_PT_SIZE]));
    if (t != NULL)
        memcpy(t, (const int [L2_PT_SIZE]){ -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
               sizeof(int [L2_PT_SIZE]));
    return t;
}

static void dispose(Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static Sequence *bare(int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (s == NULL)
        return NULL;
    *s = (Sequence){ .seq_id = id, .kv_count = kv, .block_table = malloc(sizeof(int *[L1_PT_SIZE])) };
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

static void queue_up(LLMEngine *engine, Sequence *s)
{
    struct list_node *const last = engine->active_seqs.prev;
    s->node = (struct list_node){ .prev = last, .next = last->next };
    last->next = &s->node;
    engine->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    int *counts = calloc(pool_size / BLOCK_SIZE, sizeof *counts);
    if (engine == NULL || counts == NULL) {
        free(counts);
        free(engine);
        return NULL;
    }
    *engine = (LLMEngine){
        pool_addr, (int)(pool_size / BLOCK_SIZE), (int)(pool_size / BLOCK_SIZE), counts,
        { &engine->active_seqs, &engine->active_seqs },
    };
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || by_id(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > LOGICAL_MAX * KV_PER_BLOCK)
        return NULL;
    const int n = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (n > engine->free_local_blocks)
        return NULL;

    int ids[n];
    if (collect(engine, n, ids) < n)
        return NULL;
    Sequence *s = bare(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    for (int k = 0; k < n; k++) {
        int **t = &s->block_table[k / L2_PT_SIZE];
        if (*t == NULL && (*t = leaf()) == NULL) {
            dispose(s);
            return NULL;
        }
        (*t)[k % L2_PT_SIZE] = ids[k];
    }
    own(engine, n, ids);
    queue_up(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = by_id(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int k = 0; k < LOGICAL_MAX; k++) {
        const int *t = s->block_table[k / L2_PT_SIZE];
        if (t == NULL || t[k % L2_PT_SIZE] == -1)
            continue;
        if (--engine->ref_count[t[k % L2_PT_SIZE]] == 0)
            ++engine->free_local_blocks;
    }
    dispose(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    const Sequence *p = by_id(engine, parent_seq_id);
    if (p == NULL || by_id(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *s = bare(new_seq_id, p->kv_count);
    if (s == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (p->block_table[i] == NULL)
            continue;
        if ((s->block_table[i] = leaf()) == NULL) {
            dispose(s);
            return NULL;
        }
        memcpy(s->block_table[i], p->block_table[i], sizeof(int [L2_PT_SIZE]));
    }
    for (int k = 0; k < LOGICAL_MAX; k++) {
        const int *t = s->block_table[k / L2_PT_SIZE];
        if (t != NULL && t[k % L2_PT_SIZE] != -1)
            ++engine->ref_count[t[k % L2_PT_SIZE]];
    }
    queue_up(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = by_id(engine, seq_id);
    if (s == NULL)
        return -1;
    const int logical_idx = s->kv_count / KV_PER_BLOCK, offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= LOGICAL_MAX)
        return -1;
    int **const t = &s->block_table[logical_idx / L2_PT_SIZE];
    const int e = logical_idx % L2_PT_SIZE;
    int (*const pool)[KV_PER_BLOCK] = engine->pool_base_ptr;
    int block = *t == NULL ? -1 : (*t)[e];

    if (block == -1 || engine->ref_count[block] > 1) {
        int fresh[1];
        if (engine->free_local_blocks == 0 || collect(engine, 1, fresh) != 1)
            return -1;
        if (*t == NULL && (*t = leaf()) == NULL)
            return -1;
        own(engine, 1, fresh);
        if (block != -1) {
            memcpy(pool[*fresh], pool[block], BLOCK_SIZE);
            --engine->ref_count[block];
        }
        (*t)[e] = block = *fresh;
    }
    pool[block][offset] = kv_data;
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *after = n->next;
        dispose(from_node(n));
        n = after;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

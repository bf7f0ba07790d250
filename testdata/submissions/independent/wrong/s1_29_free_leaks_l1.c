/* MISTAKE: the L1 table is not freed, task 2, shows as a leak with free_sequence and llm_destroy */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stddef.h>

struct builder {
    LLMEngine *engine;
    Sequence *seq;         /* under construction, owned */
    const Sequence *model; /* parent when forking */
    int need;
};

static inline Sequence *containing(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *with_id(LLMEngine *e, int id)
{
    struct list_node *const stop = &e->active_seqs;
    for (struct list_node *n = stop->next; n != stop; n = n->next) {
        Sequence *s = containing(n);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

static bool step_seq(struct builder *b)
{
    return (b->seq = calloc(1, sizeof *b->seq)) != NULL;
}

static bool step_root(struct builder *b)
{
    int **root = calloc(L1_PT_SIZE, sizeof *root);
    b->seq->block_table = root;
    return root != NULL;
}

static bool step_leaf(struct builder *b, int i)
{
    int *leaf = malloc(L2_PT_SIZE * sizeof *leaf);
    if (leaf != NULL)
        for (int j = 0; j < L2_PT_SIZE; j++)
            leaf[j] = -1;
    b->seq->block_table[i] = leaf;
    return leaf != NULL;
}

static bool step_leaves_for_need(struct builder *b)
{
    bool ok = true;
    for (int i = 0; ok && i < L1_PT_SIZE; i++)
        if (b->need > i * L2_PT_SIZE)
            ok = step_leaf(b, i);
    return ok;
}

static bool step_leaves_like_model(struct builder *b)
{
    bool ok = true;
    for (int i = 0; ok && i < L1_PT_SIZE; i++)
        if (b->model->block_table[i] != NULL)
            ok = step_leaf(b, i);
    return ok;
}

static Sequence *abandon(struct builder *b)
{
    if (b->seq != NULL && b->seq->block_table != NULL)
        for (int i = 0; i < L1_PT_SIZE; i++)
            free(b->seq->block_table[i]);
    free(b->seq);
    return NULL;
}

static int claim(LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++)
        if (e->ref_count[i] == 0) {
            e->ref_count[i]++;
            e->free_local_blocks--;
            return i;
        }
    return -1;
}

static Sequence *deliver(struct builder *b, int id, int kv)
{
    struct list_node *head = &b->engine->active_seqs;
    Sequence *s = b->seq;
    s->seq_id = id;
    s->kv_count = kv;
    s->node.next = head;
    s->node.prev = head->prev;
    s->node.prev->next = &s->node;
    head->prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (e == NULL)
        return NULL;
    int blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc((size_t)blocks, sizeof(int));
    if (e->ref_count == NULL) {
        free(e);
        return NULL;
    }
    e->total_local_blocks = blocks;
    e->free_local_blocks = blocks;
    e->pool_base_ptr = pool_addr;
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (with_id(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > 4096)
        return NULL;
    struct builder b = { .engine = engine, .need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK };
    if (b.need > engine->free_local_blocks)
        return NULL;
    if (!(step_seq(&b) && step_root(&b) && step_leaves_for_need(&b)))
        return abandon(&b);
    for (int k = 0; k < b.need; k++)
        b.seq->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = claim(engine);
    return deliver(&b, seq_id, initial_kv_len);
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    struct builder b = { .engine = engine, .model = with_id(engine, parent_seq_id) };
    if (b.model == NULL || with_id(engine, new_seq_id) != NULL)
        return NULL;
    if (!(step_seq(&b) && step_root(&b) && step_leaves_like_model(&b)))
        return abandon(&b);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (b.model->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            const int blk = b.model->block_table[i][j];
            if (blk != -1) {
                b.seq->block_table[i][j] = blk;
                engine->ref_count[blk]++;
            }
        }
    }
    return deliver(&b, new_seq_id, b.model->kv_count);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    struct builder b = { .engine = engine, .seq = with_id(engine, seq_id) };
    if (b.seq == NULL)
        return -1;
    const int logical_idx = b.seq->kv_count / KV_PER_BLOCK;
    const int offset = b.seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    const int i = logical_idx / L2_PT_SIZE, j = logical_idx % L2_PT_SIZE;
    int **root = b.seq->block_table;
    const int old = root[i] != NULL ? root[i][j] : -1;
    const bool shared = old != -1 && engine->ref_count[old] > 1;
    if (old == -1 || shared) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (root[i] == NULL && !step_leaf(&b, i))
            return -1;
        root[i][j] = claim(engine);
    }
    unsigned char (*blocks)[BLOCK_SIZE] = engine->pool_base_ptr;
    if (shared) {
        memcpy(blocks[root[i][j]], blocks[old], BLOCK_SIZE);
        engine->ref_count[old]--;
    }
    int *ints = (int *)(void *)blocks[root[i][j]];
    ints[offset] = kv_data;
    b.seq->kv_count++;
    return 0;
}

static void unmap_all(LLMEngine *e, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            const int blk = s->block_table[i][j];
            if (blk == -1)
                continue;
            e->ref_count[blk]--;
            if (e->ref_count[blk] == 0)
                e->free_local_blocks++;
        }
    }
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    struct builder b = { .engine = engine, .seq = with_id(engine, seq_id) };
    if (b.seq == NULL)
        return -1;
    b.seq->node.prev->next = b.seq->node.next;
    b.seq->node.next->prev = b.seq->node.prev;
    unmap_all(engine, b.seq);
    abandon(&b);
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct builder b = { .engine = engine, .seq = containing(n) };
        n = n->next;
        abandon(&b);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

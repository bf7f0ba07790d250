/* STYLE: TRY(...) macro that jumps to a common "oom" label, FOREACH_SEQ macros yielding Sequence* */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define SEQ_OF(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))
#define FOREACH_SEQ(e, s) \
    for (Sequence *s = SEQ_OF((e)->active_seqs.next); &s->node != &(e)->active_seqs; s = SEQ_OF(s->node.next))
#define FOREACH_TABLE(s, t) \
    for (int **t = (s)->block_table; t < (s)->block_table + L1_PT_SIZE; t++) if (*t)
#define FOREACH_ENTRY(t, x) \
    for (int *x = (t); x < (t) + L2_PT_SIZE; x++) if (*x != -1)
#define TRY(p) do { if ((p) == NULL) goto oom; } while (0)

static Sequence *lookup(LLMEngine *e, int id)
{
    FOREACH_SEQ(e, s)
        if (s->seq_id == id)
            return s;
    return NULL;
}

static int fit(LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++)
        if (!e->ref_count[i])
            return i;
    return -1;
}

static int *table_filled(int value)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t), i = L2_PT_SIZE;
    while (t && i)
        t[--i] = value;
    return t;
}

static void trash(Sequence *s)
{
    FOREACH_TABLE(s, t)
        free(*t);
    free(s->block_table);
    free(s);
}

static Sequence *fresh_seq(void)
{
    Sequence *s = NULL;
    TRY(s = malloc(sizeof *s));
    TRY(s->block_table = malloc(L1_PT_SIZE * sizeof *s->block_table));
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
oom:
    free(s);
    return NULL;
}

static Sequence *enter(LLMEngine *e, Sequence *s, int id, int kv)
{
    s->seq_id = id;
    s->kv_count = kv;
    s->node.next = &e->active_seqs;
    s->node.prev = e->active_seqs.prev;
    e->active_seqs.prev->next = &s->node;
    e->active_seqs.prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *e = NULL;
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    TRY(e = malloc(sizeof *e));
    TRY(e->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof *e->ref_count));
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->pool_base_ptr = pool_addr;
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
oom:
    free(e);
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || lookup(engine, seq_id))
        return NULL;
    if (initial_kv_len > KV_PER_BLOCK * L1_PT_SIZE * L2_PT_SIZE)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    Sequence *s = fresh_seq();
    if (!s)
        return NULL;
    for (int t = 0; t < (need + L2_PT_SIZE - 1) / L2_PT_SIZE; t++)
        TRY(s->block_table[t] = table_filled(-1));
    for (int k = 0, b; k < need; k++) {
        b = fit(engine);
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
    }
    return enter(engine, s, seq_id, initial_kv_len);
oom:
    trash(s);
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    FOREACH_TABLE(s, t)
        FOREACH_ENTRY(*t, x)
            if (--engine->ref_count[*x] == 0)
                engine->free_local_blocks++;
    trash(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = lookup(engine, parent_seq_id);
    if (!p || lookup(engine, new_seq_id))
        return NULL;
    Sequence *s = fresh_seq();
    if (!s)
        return NULL;
    FOREACH_TABLE(p, t) {
        int **mine = &s->block_table[t - p->block_table];
        TRY(*mine = table_filled(-1));
        FOREACH_ENTRY(*t, x)
            (*mine)[x - *t] = *x;
    }
    FOREACH_TABLE(s, t)
        FOREACH_ENTRY(*t, x)
            engine->ref_count[*x]++;
    return enter(engine, s, new_seq_id, p->kv_count);
oom:
    trash(s);
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK, offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int **t = &s->block_table[logical_idx / L2_PT_SIZE], j = logical_idx % L2_PT_SIZE;
    char *pool = engine->pool_base_ptr;
    if (!*t || (*t)[j] == -1) {
        /* new page */
        if (engine->free_local_blocks == 0)
            return -1;
        if (!*t)
            TRY(*t = table_filled(-1));
        (*t)[j] = fit(engine);
        engine->ref_count[(*t)[j]] = 1;
        engine->free_local_blocks--;
    } else if (engine->ref_count[(*t)[j]] > 1) {
        /* copy on write */
        if (engine->free_local_blocks == 0)
            return -1;
        int from = (*t)[j], to = fit(engine);
        memcpy(pool + (size_t)to * BLOCK_SIZE, pool + (size_t)from * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[from]--;
        engine->ref_count[to] = 1;
        (*t)[j] = to;
        engine->free_local_blocks--;
    }
    int *rec = (int *)(pool + (size_t)(*t)[j] * BLOCK_SIZE);
    rec[offset] = kv_data;
    s->kv_count++;
    return 0;
oom:
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *s = SEQ_OF(engine->active_seqs.next);
        s->node.prev->next = s->node.next;
        s->node.next->prev = s->node.prev;
        trash(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

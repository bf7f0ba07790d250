/* MISTAKE: the L1 table is malloc'ed and not set to NULL, task 2, shows with any create (garbage pointers) */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int free_before;
    int count;
    int blocks[L1_PT_SIZE * L2_PT_SIZE];
} Snapshot;

static void snap_begin(Snapshot *snap, const LLMEngine *engine)
{
    snap->free_before = engine->free_local_blocks;
    snap->count = 0;
}

static void snap_restore(Snapshot *snap, LLMEngine *engine)
{
    for (int k = 0; k < snap->count; k++)
        engine->ref_count[snap->blocks[k]]--;
    engine->free_local_blocks = snap->free_before;
}

static Sequence *owner_of(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *query(LLMEngine *engine, int id)
{
    struct list_node *n = &engine->active_seqs;
    while ((n = n->next) != &engine->active_seqs) {
        Sequence *s = owner_of(n);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

static int claim(LLMEngine *engine, Snapshot *snap)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] != 0)
            continue;
        engine->ref_count[i] = 1;
        engine->free_local_blocks--;
        if (snap != NULL)
            snap->blocks[snap->count++] = i;
        return i;
    }
    return -1;
}

static int *blank(void)
{
    int *l2 = malloc(sizeof(int) * L2_PT_SIZE);
    if (l2 == NULL)
        return NULL;
    for (int *p = &l2[0]; p <= &l2[L2_PT_SIZE - 1]; p++)
        *p = -1;
    return l2;
}

static Sequence *header(int id, int kv)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (s == NULL)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static void memory_back(Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static void line_up(LLMEngine *engine, Sequence *s)
{
    s->node.prev = engine->active_seqs.prev;
    s->node.next = &engine->active_seqs;
    engine->active_seqs.prev->next = &s->node;
    engine->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL)
        return free(engine), NULL;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (query(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    Sequence *s = header(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    Snapshot snap;
    snap_begin(&snap, engine);
    for (int k = 0; k < need; k++) {
        int **l2 = &s->block_table[k / L2_PT_SIZE];
        if (*l2 == NULL)
            *l2 = blank();
        if (*l2 == NULL) {
            snap_restore(&snap, engine);
            memory_back(s);
            return NULL;
        }
        (*l2)[k % L2_PT_SIZE] = claim(engine, &snap);
    }
    line_up(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = query(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = s->block_table[i][j];
            if (b != -1) {
                engine->ref_count[b]--;
                if (engine->ref_count[b] == 0)
                    engine->free_local_blocks++;
            }
        }
    }
    memory_back(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = query(engine, parent_seq_id);
    if (p == NULL || query(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *s = header(new_seq_id, p->kv_count);
    if (s == NULL)
        return NULL;
    Snapshot snap;
    snap_begin(&snap, engine);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (p->block_table[i] == NULL)
            continue;
        s->block_table[i] = blank();
        if (s->block_table[i] == NULL) {
            snap_restore(&snap, engine);
            memory_back(s);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = p->block_table[i][j];
            s->block_table[i][j] = b;
            if (b != -1) {
                engine->ref_count[b]++;
                snap.blocks[snap.count++] = b;
            }
        }
    }
    line_up(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = query(engine, seq_id);
    if (s == NULL)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int **l2 = &s->block_table[logical_idx / L2_PT_SIZE];
    int j = logical_idx % L2_PT_SIZE;
    int before = *l2 == NULL ? -1 : (*l2)[j];
    int after = before;
    if (before == -1 || engine->ref_count[before] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (*l2 == NULL && (*l2 = blank()) == NULL)
            return -1;
        after = claim(engine, NULL);
        (*l2)[j] = after;
        if (before != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)after * BLOCK_SIZE,
                   (const char *)engine->pool_base_ptr + (size_t)before * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[before]--;
        }
    }
    int *base = engine->pool_base_ptr;
    base[(size_t)after * KV_PER_BLOCK + (size_t)offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *next = n->next;
        memory_back(owner_of(n));
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

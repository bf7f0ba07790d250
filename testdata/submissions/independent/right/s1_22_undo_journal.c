/* STYLE: an undo journal on the stack: every acquired thing is recorded and undone on failure */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define JOURNAL_MAX (2 + L1_PT_SIZE + L1_PT_SIZE * L2_PT_SIZE)

typedef struct {
    LLMEngine *engine;
    int n;
    struct {
        enum { J_MEM, J_REF } kind;
        union { void *mem; int block; } u;
    } rec[JOURNAL_MAX];
} Journal;

static void journal_open(Journal *j, LLMEngine *engine)
{
    j->engine = engine;
    j->n = 0;
}

static void *journal_malloc(Journal *j, size_t size)
{
    void *p = malloc(size);
    if (p) {
        j->rec[j->n].kind = J_MEM;
        j->rec[j->n].u.mem = p;
        j->n++;
    }
    return p;
}

static void journal_ref(Journal *j, int block)
{
    if (j->engine->ref_count[block]++ == 0)
        j->engine->free_local_blocks--;
    j->rec[j->n].kind = J_REF;
    j->rec[j->n].u.block = block;
    j->n++;
}

static void journal_undo(Journal *j)
{
    while (j->n > 0) {
        j->n--;
        if (j->rec[j->n].kind == J_MEM)
            free(j->rec[j->n].u.mem);
        else if (--j->engine->ref_count[j->rec[j->n].u.block] == 0)
            j->engine->free_local_blocks++;
    }
}

static Sequence *container(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *find(LLMEngine *engine, int id)
{
    struct list_node *n;
    for (n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next)
        if (container(n)->seq_id == id)
            return container(n);
    return NULL;
}

static int first_fit(const LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0)
            return i;
    return -1;
}

static Sequence *j_sequence(Journal *j)
{
    Sequence *s = journal_malloc(j, sizeof(Sequence));
    if (!s)
        return NULL;
    s->block_table = journal_malloc(j, sizeof(int *) * L1_PT_SIZE);
    if (!s->block_table)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

static int *j_table(Journal *j)
{
    int *t = journal_malloc(j, sizeof(int) * L2_PT_SIZE);
    if (t)
        for (int i = 0; i < L2_PT_SIZE; i++)
            t[i] = -1;
    return t;
}

static Sequence *commit(LLMEngine *engine, Sequence *s, int id, int kv)
{
    s->seq_id = id;
    s->kv_count = kv;
    s->node.prev = engine->active_seqs.prev;
    s->node.next = &engine->active_seqs;
    engine->active_seqs.prev->next = &s->node;
    engine->active_seqs.prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (!engine)
        return NULL;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (!engine->ref_count) {
        free(engine);
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.next = &engine->active_seqs;
    engine->active_seqs.prev = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || find(engine, seq_id))
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > engine->free_local_blocks)
        return NULL;

    Journal j;
    journal_open(&j, engine);
    Sequence *s = j_sequence(&j);
    if (!s)
        goto undo;
    for (int i = 0; i < required; i++) {
        int **t = &s->block_table[i / L2_PT_SIZE];
        if (!*t && !(*t = j_table(&j)))
            goto undo;
        int b = first_fit(engine);
        if (b == -1)
            goto undo;
        journal_ref(&j, b);
        (*t)[i % L2_PT_SIZE] = b;
    }
    return commit(engine, s, seq_id, initial_kv_len);
undo:
    journal_undo(&j);
    return NULL;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = find(engine, parent_seq_id);
    if (!parent || find(engine, new_seq_id))
        return NULL;

    Journal j;
    journal_open(&j, engine);
    Sequence *s = j_sequence(&j);
    if (!s)
        goto undo;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!parent->block_table[i])
            continue;
        if (!(s->block_table[i] = j_table(&j)))
            goto undo;
        for (int k = 0; k < L2_PT_SIZE; k++) {
            if (parent->block_table[i][k] == -1)
                continue;
            s->block_table[i][k] = parent->block_table[i][k];
            journal_ref(&j, s->block_table[i][k]);
        }
    }
    return commit(engine, s, new_seq_id, parent->kv_count);
undo:
    journal_undo(&j);
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int a = logical_idx / L2_PT_SIZE, b = logical_idx % L2_PT_SIZE;
    int mapped = s->block_table[a] && s->block_table[a][b] != -1;
    int old = mapped ? s->block_table[a][b] : -1;
    if (!mapped || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        Journal j;
        journal_open(&j, engine);
        int *t = s->block_table[a] ? s->block_table[a] : j_table(&j);
        int blk = t ? first_fit(engine) : -1;
        if (blk == -1) {
            journal_undo(&j);
            return -1;
        }
        journal_ref(&j, blk);
        if (mapped) {
            char *pool = engine->pool_base_ptr;
            memcpy(pool + (size_t)blk * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        t[b] = blk;
        s->block_table[a] = t;
    }
    char *where = (char *)engine->pool_base_ptr + (size_t)s->block_table[a][b] * BLOCK_SIZE;
    ((int *)where)[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *t = s->block_table[i];
        if (!t)
            continue;
        for (int k = 0; k < L2_PT_SIZE; k++)
            if (t[k] != -1 && --engine->ref_count[t[k]] == 0)
                engine->free_local_blocks++;
        free(t);
    }
    free(s->block_table);
    free(s);
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        Sequence *s = container(n);
        n = n->next;
        for (int i = 0; i < L1_PT_SIZE; i++)
            free(s->block_table[i]);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

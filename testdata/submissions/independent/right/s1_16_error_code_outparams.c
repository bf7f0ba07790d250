/* STYLE: internal functions return status codes and write through out-parameters; ifdef'd debug checks */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#ifdef LLM_DEBUG
#include <stdio.h>
#define TRACE(...) fprintf(stderr, __VA_ARGS__)
#else
#define TRACE(...) ((void)0)
#endif

typedef enum { ST_OK, ST_BAD_ARG, ST_NOT_FOUND, ST_DUP, ST_FULL, ST_NOMEM } status;

static status st_find(LLMEngine *e, int id, Sequence **out)
{
    struct list_node *n = e->active_seqs.next;
    for (; n != &e->active_seqs; n = n->next) {
        *out = (Sequence *)((char *)n - offsetof(Sequence, node));
        if ((*out)->seq_id == id)
            return ST_OK;
    }
    *out = NULL;
    return ST_NOT_FOUND;
}

static status st_table(int **out)
{
    int i;
    int *t;
    if ((t = malloc(L2_PT_SIZE * sizeof *t)) == NULL)
        return ST_NOMEM;
    for (i = 0; i < L2_PT_SIZE; i++)
        t[i] = -1;
    *out = t;
    return ST_OK;
}

static status st_seq(Sequence **out)
{
    Sequence *s = malloc(sizeof *s);
    if (s == NULL)
        return ST_NOMEM;
    s->block_table = calloc(L1_PT_SIZE, sizeof *s->block_table);
    if (s->block_table == NULL) {
        free(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

static status st_block(LLMEngine *e, int *out)
{
    int i;
    for (i = 0; i < e->total_local_blocks; i++) {
        if (e->ref_count[i] == 0) {
            *out = i;
            e->ref_count[i] = 1;
            e->free_local_blocks--;
            return ST_OK;
        }
    }
    return ST_FULL;
}

static void give_back(LLMEngine *e, Sequence *s)
{
    int i, j;
    for (i = 0; i < L1_PT_SIZE; i++) {
        int *t = s->block_table[i];
        if (t == NULL)
            continue;
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (t[j] == -1)
                continue;
            if ((e->ref_count[t[j]] -= 1) == 0)
                e->free_local_blocks += 1;
        }
        free(t);
    }
    free(s->block_table);
    free(s);
}

static void link_it(LLMEngine *e, Sequence *s)
{
    s->node.prev = e->active_seqs.prev;
    s->node.next = &e->active_seqs;
    s->node.prev->next = &s->node;
    s->node.next->prev = &s->node;
}

static status st_create(LLMEngine *e, int id, int len, Sequence **out)
{
    status st;
    int need, k;
    Sequence *s;
    if (len <= 0)
        return ST_BAD_ARG;
    if (st_find(e, id, &s) == ST_OK)
        return ST_DUP;
    if (len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return ST_FULL;
    need = (len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > e->free_local_blocks)
        return ST_FULL;
    if ((st = st_seq(&s)) != ST_OK)
        return st;
    for (k = 0; k < need && st == ST_OK; k++) {
        int **t = &s->block_table[k / L2_PT_SIZE];
        if (*t == NULL)
            st = st_table(t);
        if (st == ST_OK)
            st = st_block(e, &(*t)[k % L2_PT_SIZE]);
    }
    if (st != ST_OK) {
        give_back(e, s);
        return st;
    }
    s->seq_id = id;
    s->kv_count = len;
    link_it(e, s);
    *out = s;
    return ST_OK;
}

static status st_fork(LLMEngine *e, int pid, int id, Sequence **out)
{
    status st;
    Sequence *p, *s;
    int i, j;
    if ((st = st_find(e, pid, &p)) != ST_OK)
        return st;
    if (st_find(e, id, &s) == ST_OK)
        return ST_DUP;
    if ((st = st_seq(&s)) != ST_OK)
        return st;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (p->block_table[i] == NULL)
            continue;
        if ((st = st_table(&s->block_table[i])) != ST_OK) {
            give_back(e, s);
            return st;
        }
        for (j = 0; j < L2_PT_SIZE; j++) {
            s->block_table[i][j] = p->block_table[i][j];
            if (s->block_table[i][j] != -1)
                e->ref_count[s->block_table[i][j]] += 1;
        }
    }
    s->seq_id = id;
    s->kv_count = p->kv_count;
    link_it(e, s);
    *out = s;
    return ST_OK;
}

static status st_append(LLMEngine *e, int id, int value)
{
    Sequence *s;
    status st;
    int idx, off, old, now, **t;
    char *base = e->pool_base_ptr;
    if ((st = st_find(e, id, &s)) != ST_OK)
        return st;
    idx = s->kv_count / KV_PER_BLOCK;
    off = s->kv_count % KV_PER_BLOCK;
    if (idx >= L1_PT_SIZE * L2_PT_SIZE)
        return ST_FULL;
    t = &s->block_table[idx / L2_PT_SIZE];
    idx %= L2_PT_SIZE;
    old = now = *t != NULL ? (*t)[idx] : -1;
    if (old == -1 || e->ref_count[old] > 1) {
        if (e->free_local_blocks == 0)
            return ST_FULL;
        if (*t == NULL && (st = st_table(t)) != ST_OK)
            return st;
        if ((st = st_block(e, &now)) != ST_OK)
            return st;
        if (old != -1) {
            TRACE("cow %d -> %d\n", old, now);
            memcpy(base + (size_t)now * BLOCK_SIZE, base + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            e->ref_count[old] -= 1;
        }
        (*t)[idx] = now;
    }
    *((int *)(base + (size_t)now * BLOCK_SIZE) + off) = value;
    s->kv_count += 1;
    return ST_OK;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (e == NULL)
        return NULL;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    if ((e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count)) == NULL) {
        free(e);
        return NULL;
    }
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *s = NULL;
    return st_create(engine, seq_id, initial_kv_len, &s) == ST_OK ? s : NULL;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *s = NULL;
    return st_fork(engine, parent_seq_id, new_seq_id, &s) == ST_OK ? s : NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    return st_append(engine, seq_id, kv_data) == ST_OK ? 0 : -1;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    if (st_find(engine, seq_id, &s) != ST_OK)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    give_back(engine, s);
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next, *next;
    for (; n != &engine->active_seqs; n = next) {
        next = n->next;
        give_back(engine, (Sequence *)((char *)n - offsetof(Sequence, node)));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

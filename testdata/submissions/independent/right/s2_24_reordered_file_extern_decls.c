/* STYLE: API bottom-up (destroy first), helpers declared where used, tail recursion for destroy, ssize counters */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

/* the 2-level table as one object */
typedef struct Table2 {
    int **root;
} Table2;

static int t2_read(Table2 t, int k)
{
    return t.root[k >> 4] != NULL ? t.root[k >> 4][k & 15] : -1;
}

static int t2_has_row(Table2 t, int k)
{
    return t.root[k >> 4] != NULL;
}

static int t2_add_row(Table2 t, int k)
{
    int *row = malloc(sizeof(int) * L2_PT_SIZE);
    if (row == NULL)
        return -1;
    for (int i = 0; i < L2_PT_SIZE; ++i)
        row[i] = -1;
    t.root[k >> 4] = row;
    return 0;
}

static void t2_write(Table2 t, int k, int v)
{
    t.root[k >> 4][k & 15] = v;
}

static Table2 t2_new(void)
{
    Table2 t = { malloc(sizeof(int *) * L1_PT_SIZE) };
    for (int i = 0; t.root != NULL && i < L1_PT_SIZE; ++i)
        t.root[i] = NULL;
    return t;
}

static void t2_delete(Table2 t)
{
    for (int i = 0; i < L1_PT_SIZE; ++i)
        free(t.root[i]);
    free(t.root);
}

static void t2_unref_all(Table2 t, LLMEngine *engine)
{
    for (int k = 0; k < L1_PT_SIZE * L2_PT_SIZE; ++k) {
        int b = t2_read(t, k);
        if (b == -1)
            continue;
        engine->ref_count[b] -= 1;
        if (engine->ref_count[b] == 0)
            engine->free_local_blocks += 1;
    }
}

static int claim_first(LLMEngine *engine)
{
    for (int b = 0; b < engine->total_local_blocks; ++b)
        if (engine->ref_count[b] == 0) {
            engine->ref_count[b] = 1;
            engine->free_local_blocks -= 1;
            return b;
        }
    return -1;
}

static Sequence *seq(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *find(LLMEngine *engine, int id)
{
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs && seq(n)->seq_id != id)
        n = n->next;
    if (n == &engine->active_seqs)
        return NULL;
    return seq(n);
}

/* makes the sequence out of a finished table; on failure the table stays with the caller */
static Sequence *wrap(LLMEngine *engine, Table2 t, int id, int kv)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (s == NULL)
        return NULL;
    s->seq_id = id;
    s->kv_count = kv;
    s->block_table = t.root;
    s->node.prev = engine->active_seqs.prev;
    s->node.next = &engine->active_seqs;
    engine->active_seqs.prev->next = &s->node;
    engine->active_seqs.prev = &s->node;
    return s;
}

static char *addr(LLMEngine *engine, int b)
{
    return (char *)engine->pool_base_ptr + ((size_t)b << 6);
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    if (n != &engine->active_seqs) {
        engine->active_seqs.next = n->next;
        t2_delete((Table2){ seq(n)->block_table });
        free(seq(n));
        return llm_destroy(engine);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (s == NULL)
        return -1;
    int k = s->kv_count / KV_PER_BLOCK;
    if (k >= 256)
        return -1;
    Table2 t = { s->block_table };
    int b = t2_read(t, k);
    if (b == -1 || engine->ref_count[b] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!t2_has_row(t, k) && t2_add_row(t, k) == -1)
            return -1;
        int c = claim_first(engine);
        if (b != -1) {
            memcpy(addr(engine, c), addr(engine, b), 64);
            engine->ref_count[b] -= 1;
        }
        t2_write(t, k, c);
        b = c;
    }
    ((int *)addr(engine, b))[s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count += 1;
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = find(engine, parent_seq_id);
    if (p == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    Table2 from = { p->block_table }, to = t2_new();
    if (to.root == NULL)
        return NULL;
    for (int k = 0; k < L1_PT_SIZE * L2_PT_SIZE; ++k) {
        if (!t2_has_row(from, k))
            continue;
        if (!t2_has_row(to, k) && t2_add_row(to, k) == -1) {
            t2_delete(to);
            return NULL;
        }
        t2_write(to, k, t2_read(from, k));
    }
    Sequence *c = wrap(engine, to, new_seq_id, p->kv_count);
    if (c == NULL) {
        t2_delete(to);
        return NULL;
    }
    for (int k = 0; k < L1_PT_SIZE * L2_PT_SIZE; ++k)
        if (t2_read(to, k) != -1)
            engine->ref_count[t2_read(to, k)] += 1;
    return c;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    t2_unref_all((Table2){ s->block_table }, engine);
    t2_delete((Table2){ s->block_table });
    free(s);
    return 0;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || find(engine, seq_id) != NULL)
        return NULL;
    long need = ((long)initial_kv_len + 15) >> 4;
    if (need > 256 || need > engine->free_local_blocks)
        return NULL;
    Table2 t = t2_new();
    if (t.root == NULL)
        return NULL;
    for (int k = 0; k < need; k += L2_PT_SIZE) {
        if (t2_add_row(t, k) == -1) {
            t2_delete(t);
            return NULL;
        }
    }
    Sequence *s = wrap(engine, t, seq_id, initial_kv_len);
    if (s == NULL) {
        t2_delete(t);
        return NULL;
    }
    for (int k = 0; k < need; ++k)
        t2_write(t, k, claim_first(engine));
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;
    size_t n = pool_size / BLOCK_SIZE;
    engine->ref_count = calloc(n, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)n;
    engine->free_local_blocks = (int)n;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

/* MISTAKE: the engine leaks when the ref_count calloc fails, task 1, shows only when the second allocation of llm_init fails */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

#define SEQ(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))

/* gcc turns this tail call into a loop at -O2; below it still only costs a small frame */
static Sequence *search(const struct list_node *head, struct list_node *n, int id)
{
    return n == head ? NULL : SEQ(n)->seq_id == id ? SEQ(n) : search(head, n->next, id);
}

static Sequence *get(LLMEngine *e, int id)
{
    return search(&e->active_seqs, e->active_seqs.next, id);
}

static void fill(int *t, int i)
{
    if (i == L2_PT_SIZE)
        return;
    t[i] = -1;
    fill(t, i + 1);
}

/* makes tables i..n-1, all or none */
static int make_tables(int **l1, int i, int n)
{
    if (i == n)
        return 1;
    if (!(l1[i] = malloc(sizeof(int[L2_PT_SIZE]))))
        return 0;
    fill(l1[i], 0);
    if (make_tables(l1, i + 1, n))
        return 1;
    free(l1[i]);
    l1[i] = NULL;
    return 0;
}

/* copies tables i..15, all or none; refs are taken only once everything is there */
static int copy_tables(LLMEngine *e, int **dst, int *const *src, int i)
{
    if (i == L1_PT_SIZE)
        return 1;
    dst[i] = NULL;
    if (src[i]) {
        if (!(dst[i] = malloc(sizeof(int[L2_PT_SIZE]))))
            return 0;
        fill(dst[i], 0);
    }
    if (!copy_tables(e, dst, src, i + 1)) {
        free(dst[i]);
        return 0;
    }
    for (int j = 0; src[i] && j < L2_PT_SIZE; j++)
        if ((dst[i][j] = src[i][j]) != -1)
            e->ref_count[dst[i][j]]++;
    return 1;
}

static void drop_tables(LLMEngine *e, int **l1, int i)
{
    if (i == L1_PT_SIZE)
        return;
    if (l1[i]) {
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (l1[i][j] != -1)
                e->free_local_blocks += --e->ref_count[l1[i][j]] == 0 ? 1 : 0;
        free(l1[i]);
    }
    drop_tables(e, l1, i + 1);
}

static int take(LLMEngine *e)
{
    int i;
    for (i = 0; i < e->total_local_blocks; i++)
        if (e->ref_count[i] == 0)
            break;
    e->ref_count[i] = 1;
    e->free_local_blocks--;
    return i;
}

static void kill_all(LLMEngine *e, struct list_node *n)
{
    while (n != &e->active_seqs) {
        Sequence *s = SEQ(n);
        n = n->next;
        drop_tables(e, s->block_table, 0);
        free(s->block_table);
        free(s);
    }
}

static Sequence *shell(void)
{
    Sequence *s = malloc(sizeof(Sequence));
    int **l1 = s ? malloc(sizeof(int *[L1_PT_SIZE])) : NULL;
    if (!l1) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        l1[i] = NULL;
    s->block_table = l1;
    return s;
}

static Sequence *enlist(LLMEngine *e, Sequence *s, int id, int kv)
{
    s->seq_id = id;
    s->kv_count = kv;
    s->node.prev = e->active_seqs.prev;
    s->node.next = &e->active_seqs;
    return s->node.prev->next = &s->node, e->active_seqs.prev = &s->node, s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof(LLMEngine));
    if (e == NULL)
        return NULL;
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->pool_base_ptr = pool_addr;
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    return e->ref_count ? e : NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || get(engine, seq_id) != NULL)
        return NULL;
    int need = 1 + (initial_kv_len - 1) / KV_PER_BLOCK;
    if (need > 256 || need > engine->free_local_blocks)
        return NULL;
    Sequence *s = shell();
    if (s == NULL)
        return NULL;
    if (!make_tables(s->block_table, 0, 1 + (need - 1) / L2_PT_SIZE)) {
        free(s->block_table);
        free(s);
        return NULL;
    }
    for (int k = 0; k < need; k++)
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = take(engine);
    return enlist(engine, s, seq_id, initial_kv_len);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = get(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    drop_tables(engine, s->block_table, 0);
    free(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = get(engine, parent_seq_id);
    if (p == NULL || get(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *c = shell();
    if (c == NULL)
        return NULL;
    if (!copy_tables(engine, c->block_table, p->block_table, 0)) {
        free(c->block_table);
        free(c);
        return NULL;
    }
    return enlist(engine, c, new_seq_id, p->kv_count);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = get(engine, seq_id);
    if (s == NULL)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK, offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int a = logical_idx / L2_PT_SIZE, b = logical_idx % L2_PT_SIZE;
    int old = s->block_table[a] ? s->block_table[a][b] : -1;
    int own = old != -1 && engine->ref_count[old] == 1;
    if (!own) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!s->block_table[a] && !make_tables(s->block_table, a, a + 1))
            return -1;
        int fresh = s->block_table[a][b] = take(engine);
        if (old != -1) {
            char *pool = engine->pool_base_ptr;
            memcpy(&pool[(size_t)fresh * BLOCK_SIZE], &pool[(size_t)old * BLOCK_SIZE], 64);
            engine->ref_count[old]--;
        }
        old = fresh;
    }
    ((int *)engine->pool_base_ptr)[(size_t)old * KV_PER_BLOCK + (size_t)offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    kill_all(engine, engine->active_seqs.next);
    free(engine->ref_count);
    free(engine);
    return 0;
}

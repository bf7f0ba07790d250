/* STYLE: binary recursion over ranges of logical blocks, unions for address conversion */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

union addr {
    void *v;
    char *c;
    int *i;
    struct list_node *n;
    Sequence *s;
};

static union addr seq_of(struct list_node *n)
{
    union addr a = { .n = n };
    a.c -= offsetof(Sequence, node);
    return a;
}

static union addr block(const LLMEngine *e, int id)
{
    union addr a = { .v = e->pool_base_ptr };
    a.c += (size_t)id * BLOCK_SIZE;
    return a;
}

static Sequence *find(LLMEngine *e, int id)
{
    for (struct list_node *n = e->active_seqs.next; n != &e->active_seqs; n = n->next)
        if (seq_of(n).s->seq_id == id)
            return seq_of(n).s;
    return NULL;
}

static int first_fit(LLMEngine *e)
{
    for (int k = 0; k < e->total_local_blocks; k++) {
        if (e->ref_count[k] == 0) {
            e->ref_count[k] = 1;
            e->free_local_blocks--;
            return k;
        }
    }
    return -1;
}

static void drop_range(LLMEngine *e, int *t, int lo, int hi)
{
    if (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        drop_range(e, t, lo, mid);
        drop_range(e, t, mid, hi);
    } else if (t[lo] != -1) {
        if (--e->ref_count[t[lo]] == 0)
            e->free_local_blocks++;
    }
}

static void ref_range(LLMEngine *e, const int *t, int lo, int hi)
{
    if (hi - lo > 1) {
        ref_range(e, t, lo, (lo + hi) / 2);
        ref_range(e, t, (lo + hi) / 2, hi);
    } else if (t[lo] != -1) {
        e->ref_count[t[lo]]++;
    }
}

/* maps logical blocks lo..hi-1 from left to right, so the first fit order holds */
static void map_range(LLMEngine *e, int **root, int lo, int hi)
{
    if (hi - lo == 1) {
        root[lo / L2_PT_SIZE][lo % L2_PT_SIZE] = first_fit(e);
        return;
    }
    map_range(e, root, lo, (lo + hi) / 2);
    map_range(e, root, (lo + hi) / 2, hi);
}

static void free_range(int **root, int lo, int hi)
{
    if (hi - lo == 1) {
        free(root[lo]);
        return;
    }
    free_range(root, lo, (lo + hi) / 2);
    free_range(root, (lo + hi) / 2, hi);
}

static int *table(void)
{
    union addr a = { .v = malloc(L2_PT_SIZE * sizeof(int)) };
    for (int k = 0; a.v && k < L2_PT_SIZE; k++)
        a.i[k] = -1;
    return a.i;
}

/* mask says which second-level tables there are */
static Sequence *assemble(unsigned mask, int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (!s->block_table)
        goto fail;
    for (int k = 0; k < L1_PT_SIZE; k++)
        s->block_table[k] = NULL;
    for (int k = 0; k < L1_PT_SIZE; k++) {
        if (!(mask & (1u << k)))
            continue;
        s->block_table[k] = table();
        if (!s->block_table[k]) {
            free_range(s->block_table, 0, L1_PT_SIZE);
            goto fail;
        }
    }
    s->seq_id = id;
    s->kv_count = kv;
    return s;
fail:
    free(s->block_table);
    free(s);
    return NULL;
}

static void put_last(LLMEngine *e, Sequence *s)
{
    s->node.prev = e->active_seqs.prev;
    s->node.next = &e->active_seqs;
    e->active_seqs.prev->next = &s->node;
    e->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    e->free_local_blocks = e->total_local_blocks;
    e->pool_base_ptr = pool_addr;
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || find(engine, seq_id))
        return NULL;
    int need = (initial_kv_len - 1) / KV_PER_BLOCK + 1;
    if (need > 256 || need > engine->free_local_blocks)
        return NULL;
    unsigned mask = 0;
    for (int k = 0; k < need; k += L2_PT_SIZE)
        mask |= 1u << (k / L2_PT_SIZE);
    Sequence *s = assemble(mask, seq_id, initial_kv_len);
    if (!s)
        return NULL;
    map_range(engine, s->block_table, 0, need);
    put_last(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int k = 0; k < L1_PT_SIZE; k++)
        if (s->block_table[k])
            drop_range(engine, s->block_table[k], 0, L2_PT_SIZE);
    free_range(s->block_table, 0, L1_PT_SIZE);
    free(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    Sequence *p = find(engine, parent_seq_id);
    if (!p || find(engine, new_seq_id))
        return NULL;
    unsigned mask = 0;
    for (int k = 0; k < L1_PT_SIZE; k++)
        if (p->block_table[k])
            mask |= 1u << k;
    Sequence *s = assemble(mask, new_seq_id, p->kv_count);
    if (!s)
        return NULL;
    for (int k = 0; k < L1_PT_SIZE; k++) {
        if (!s->block_table[k])
            continue;
        memcpy(s->block_table[k], p->block_table[k], L2_PT_SIZE * sizeof(int));
        ref_range(engine, s->block_table[k], 0, L2_PT_SIZE);
    }
    put_last(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    int lb = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (lb >= 256)
        return -1;
    int **t = s->block_table + lb / L2_PT_SIZE;
    int at = lb % L2_PT_SIZE;
    int cur = *t ? (*t)[at] : -1;
    if (cur == -1 || engine->ref_count[cur] > 1) {
        if (!engine->free_local_blocks)
            return -1;
        if (!*t)
            *t = table();
        if (!*t)
            return -1;
        (*t)[at] = first_fit(engine);
        if (cur != -1) {
            memcpy(block(engine, (*t)[at]).v, block(engine, cur).v, BLOCK_SIZE);
            engine->ref_count[cur]--;
        }
    }
    block(engine, (*t)[at]).i[off] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs;) {
        Sequence *s = seq_of(n).s;
        n = n->next;
        free_range(s->block_table, 0, L1_PT_SIZE);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

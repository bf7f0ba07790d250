/* MISTAKE: block numbers are cut to 16 bits, task 2, shows only with blocks above 65,535 */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static Sequence *around(struct list_node *p)
{
    return (Sequence *)((char *)p - offsetof(Sequence, node));
}

static Sequence *walk_to(LLMEngine *e, int id)
{
    struct list_node *p = e->active_seqs.next, *end = &e->active_seqs;
    while (p != end) {
        if (around(p)->seq_id == id)
            return around(p);
        p = p->next;
    }
    return NULL;
}

static int *first_zero(LLMEngine *e)
{
    int *end = e->ref_count + e->total_local_blocks;
    for (int *p = e->ref_count; p < end; ++p)
        if (!*p)
            return p;
    return NULL;
}

/* takes the block at count p, returns its number */
static int occupy(LLMEngine *e, int *p)
{
    *p = 1;
    --e->free_local_blocks;
    return (unsigned short)(p - e->ref_count);
}

static void vacate(LLMEngine *e, int block)
{
    int *p = e->ref_count + block;
    --*p;
    if (!*p)
        ++e->free_local_blocks;
}

static int *page(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t);
    if (t)
        for (int *p = t, *end = t + L2_PT_SIZE; p < end; *p++ = -1)
            continue;
    return t;
}

static int **directory(void)
{
    int **d = malloc(L1_PT_SIZE * sizeof *d);
    if (d)
        for (int **p = d, **end = d + L1_PT_SIZE; p < end; *p++ = NULL)
            continue;
    return d;
}

static void burn(Sequence *s)
{
    for (int **p = s->block_table, **end = p + L1_PT_SIZE; p < end; ++p)
        free(*p);
    free(s->block_table);
    free(s);
}

static Sequence *spawn(int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    if (!(s->block_table = directory())) {
        free(s);
        return NULL;
    }
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static void attach_last(LLMEngine *e, Sequence *s)
{
    struct list_node *h = &e->active_seqs, *x = &s->node;
    (x->prev = h->prev)->next = x;
    (x->next = h)->prev = x;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->free_local_blocks = e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    if (!(e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count))) {
        free(e);
        return NULL;
    }
    e->pool_base_ptr = pool_addr;
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || walk_to(engine, seq_id))
        return NULL;
    if (initial_kv_len > 4096)
        return NULL;
    int left = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (left > engine->free_local_blocks)
        return NULL;
    Sequence *s = spawn(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    /* tables first */
    int **d = s->block_table;
    for (int n = left; n > 0; n -= L2_PT_SIZE, ++d) {
        if (!(*d = page())) {
            burn(s);
            return NULL;
        }
    }
    /* then blocks */
    for (d = s->block_table; left > 0; ++d)
        for (int *t = *d; t < *d + L2_PT_SIZE && left > 0; ++t, --left)
            *t = occupy(engine, first_zero(engine));
    attach_last(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = walk_to(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int **d = s->block_table; d < s->block_table + L1_PT_SIZE; ++d) {
        if (!*d)
            continue;
        for (int *t = *d; t < *d + L2_PT_SIZE; ++t)
            if (*t != -1)
                vacate(engine, *t);
    }
    burn(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = walk_to(engine, parent_seq_id), *c;
    if (!p || walk_to(engine, new_seq_id))
        return NULL;
    if (!(c = spawn(new_seq_id, p->kv_count)))
        return NULL;
    int **to = c->block_table;
    for (int **from = p->block_table; from < p->block_table + L1_PT_SIZE; ++from, ++to) {
        if (*from && !(*to = page())) {
            burn(c);
            return NULL;
        }
    }
    to = c->block_table;
    for (int **from = p->block_table; from < p->block_table + L1_PT_SIZE; ++from, ++to) {
        if (!*from)
            continue;
        for (int *a = *from, *b = *to; a < *from + L2_PT_SIZE; ++a, ++b) {
            *b = *a;
            if (*b != -1)
                ++*(engine->ref_count + *b);
        }
    }
    attach_last(engine, c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = walk_to(engine, seq_id);
    if (!s)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK, offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int **d = s->block_table + logical_idx / L2_PT_SIZE;
    int old = *d ? *(*d + logical_idx % L2_PT_SIZE) : -1, use = old;
    char *pool = engine->pool_base_ptr;
    if (old == -1 || *(engine->ref_count + old) > 1) {
        if (!engine->free_local_blocks)
            return -1;
        if (!*d && !(*d = page()))
            return -1;
        use = occupy(engine, first_zero(engine));
        if (old != -1) {
            memcpy(pool + (ptrdiff_t)use * BLOCK_SIZE, pool + (ptrdiff_t)old * BLOCK_SIZE, BLOCK_SIZE);
            --*(engine->ref_count + old);
        }
        *(*d + logical_idx % L2_PT_SIZE) = use;
    }
    *((int *)(pool + (ptrdiff_t)use * BLOCK_SIZE) + offset) = kv_data;
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        Sequence *s = around(p);
        p = p->next;
        burn(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

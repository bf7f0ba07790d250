/* STYLE: one walker over all table entries, driven by a table of function pointers */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

typedef void (*entry_op)(LLMEngine *, int block);

static void op_incref(LLMEngine *e, int b) { e->ref_count[b]++; }
static void op_decref(LLMEngine *e, int b)
{
    if (--e->ref_count[b] == 0)
        e->free_local_blocks++;
}

enum op { OP_INC, OP_DEC };
static const entry_op ops[] = { [OP_INC] = op_incref, [OP_DEC] = op_decref };

static void walk(LLMEngine *e, const Sequence *s, enum op which)
{
    for (int i = 0; i < L1_PT_SIZE * L2_PT_SIZE; i++) {
        const int *t = s->block_table[i / L2_PT_SIZE];
        if (t && t[i % L2_PT_SIZE] != -1)
            ops[which](e, t[i % L2_PT_SIZE]);
    }
}

static Sequence *from(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *by_id(LLMEngine *e, int id)
{
    for (struct list_node *n = e->active_seqs.next; n != &e->active_seqs; n = n->next)
        if (from(n)->seq_id == id)
            return from(n);
    return NULL;
}

static void destroy_memory(Sequence *s)
{
    if (!s)
        return;
    if (s->block_table)
        for (int i = 0; i < L1_PT_SIZE; i++)
            free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static int *table_new(void)
{
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    for (int i = 0; t && i < L2_PT_SIZE; i++)
        t[i] = -1;
    return t;
}

/* a sequence with a table wherever the mask has a bit */
static Sequence *build(unsigned mask)
{
    Sequence *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (!s->block_table)
        goto no;
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (mask >> i & 1u)
            if (!(s->block_table[i] = table_new()))
                goto no;
    return s;
no:
    destroy_memory(s);
    return NULL;
}

static Sequence *attach(LLMEngine *e, Sequence *s)
{
    s->node.next = &e->active_seqs;
    s->node.prev = e->active_seqs.prev;
    e->active_seqs.prev->next = &s->node;
    e->active_seqs.prev = &s->node;
    return s;
}

static int first_fit(const LLMEngine *e)
{
    for (int i = 0; i <= e->total_local_blocks - 1; i++)
        if (e->ref_count[i] == 0)
            return i;
    return -1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    if (!(e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int)))) {
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
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (by_id(engine, seq_id))
        return NULL;
    if (initial_kv_len > 256 * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    int tables = (need + L2_PT_SIZE - 1) / L2_PT_SIZE;
    Sequence *s = build((1u << tables) - 1u);
    if (!s)
        return NULL;
    for (int i = 0; i < need; i++) {
        int b = first_fit(engine);
        s->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    return attach(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = by_id(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    walk(engine, s, OP_DEC);
    destroy_memory(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = by_id(engine, parent_seq_id);
    if (!p || by_id(engine, new_seq_id))
        return NULL;
    unsigned mask = 0;
    for (int i = 0; i < L1_PT_SIZE; i++)
        mask |= (unsigned)(p->block_table[i] != NULL) << i;
    Sequence *c = build(mask);
    if (!c)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (c->block_table[i])
            memcpy(c->block_table[i], p->block_table[i], sizeof(int) * L2_PT_SIZE);
    walk(engine, c, OP_INC);
    c->seq_id = new_seq_id;
    c->kv_count = p->kv_count;
    return attach(engine, c);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = by_id(engine, seq_id);
    if (!s)
        return -1;
    int li = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (li >= 256)
        return -1;
    int i = li / L2_PT_SIZE, j = li % L2_PT_SIZE;
    enum { NEW_PAGE, COW, EXCLUSIVE } what;
    if (!s->block_table[i] || s->block_table[i][j] == -1)
        what = NEW_PAGE;
    else if (engine->ref_count[s->block_table[i][j]] > 1)
        what = COW;
    else
        what = EXCLUSIVE;
    if (what != EXCLUSIVE && engine->free_local_blocks == 0)
        return -1;
    char *pool = engine->pool_base_ptr;
    int b = -1;
    switch (what) {
    case NEW_PAGE:
        if (!s->block_table[i] && !(s->block_table[i] = table_new()))
            return -1;
        b = first_fit(engine);
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        s->block_table[i][j] = b;
        break;
    case COW:
        b = first_fit(engine);
        memcpy(pool + (size_t)b * BLOCK_SIZE, pool + (size_t)s->block_table[i][j] * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        op_decref(engine, s->block_table[i][j]);
        s->block_table[i][j] = b;
        break;
    case EXCLUSIVE:
        b = s->block_table[i][j];
        break;
    }
    int *addr = (int *)(pool + (size_t)b * BLOCK_SIZE) + off;
    *addr = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        Sequence *dead = from(n);
        n = n->next;
        destroy_memory(dead);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* STYLE: compound literals and designated initialisers, helper returning struct list_node**, bool chains */
#include "llm_memory.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALL_UNMAPPED ((int [L2_PT_SIZE]){ [0] = -1, [1] = -1, [2] = -1, [3] = -1, [4] = -1, [5] = -1, [6] = -1, \
    [7] = -1, [8] = -1, [9] = -1, [10] = -1, [11] = -1, [12] = -1, [13] = -1, [14] = -1, [15] = -1 })

typedef struct { int *base; } Cells;

static Sequence *seq_at(struct list_node *p) { return (Sequence *)((char *)p - offsetof(Sequence, node)); }

/* address of the next pointer that leads to the sequence, or to the head when there is none */
static struct list_node **link_to(LLMEngine *e, int id)
{
    struct list_node **pp = &e->active_seqs.next;
    while (*pp != &e->active_seqs && seq_at(*pp)->seq_id != id)
        pp = &(*pp)->next;
    return pp;
}

static Sequence *at_link(LLMEngine *e, struct list_node **pp)
{
    return *pp == &e->active_seqs ? NULL : seq_at(*pp);
}

static Sequence *get(LLMEngine *e, int id) { return at_link(e, link_to(e, id)); }

static Cells cells(LLMEngine *e, int block)
{
    return (Cells){ .base = (int *)e->pool_base_ptr + (size_t)block * KV_PER_BLOCK };
}

static int take(LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++)
        if (e->ref_count[i] == 0)
            return e->ref_count[i] = 1, e->free_local_blocks--, i;
    return -1;
}

static bool new_table(int **where)
{
    int *t = malloc(sizeof ALL_UNMAPPED);
    return t && (*where = memcpy(t, ALL_UNMAPPED, sizeof ALL_UNMAPPED)) != NULL;
}

static bool new_seq(Sequence **where, int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    int **root = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!s || !root)
        return free(s), free(root), false;
    for (int i = 0; i < L1_PT_SIZE; i++)
        root[i] = NULL;
    *s = (Sequence){ .seq_id = id, .kv_count = kv, .block_table = root };
    *where = s;
    return true;
}

static void end_seq(LLMEngine *e, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        for (int j = 0; s->block_table[i] && j < L2_PT_SIZE; j++) {
            const int b = s->block_table[i][j];
            if (b != -1 && --e->ref_count[b] == 0)
                e->free_local_blocks++;
        }
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

static Sequence *last(LLMEngine *e, Sequence *s)
{
    s->node = (struct list_node){ .prev = e->active_seqs.prev, .next = &e->active_seqs };
    e->active_seqs.prev->next = &s->node;
    e->active_seqs.prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    *e = (LLMEngine){
        .pool_base_ptr = pool_addr,
        .total_local_blocks = (int)(pool_size / BLOCK_SIZE),
        .free_local_blocks = (int)(pool_size / BLOCK_SIZE),
        .ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int)),
        .active_seqs = { .prev = &e->active_seqs, .next = &e->active_seqs },
    };
    if (!e->ref_count)
        return free(e), NULL;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || get(engine, seq_id) || initial_kv_len > 4096)
        return NULL;
    const div_t d = div(initial_kv_len, KV_PER_BLOCK);
    const int need = d.quot + (d.rem != 0);
    Sequence *s;
    if (need > engine->free_local_blocks || !new_seq(&s, seq_id, initial_kv_len))
        return NULL;
    bool ok = true;
    for (int k = 0; ok && k < need; k++) {
        int **t = &s->block_table[k / L2_PT_SIZE];
        ok = *t || new_table(t);
        if (ok)
            (*t)[k % L2_PT_SIZE] = take(engine);
    }
    if (!ok)
        return end_seq(engine, s), NULL;
    return last(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    struct list_node **pp = link_to(engine, seq_id);
    Sequence *s = at_link(engine, pp);
    if (!s)
        return -1;
    *pp = s->node.next;
    s->node.next->prev = s->node.prev;
    return end_seq(engine, s), 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    const Sequence *p = get(engine, parent_seq_id);
    Sequence *s;
    if (!p || get(engine, new_seq_id) || !new_seq(&s, new_seq_id, p->kv_count))
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!p->block_table[i])
            continue;
        if (!new_table(&s->block_table[i]))
            return end_seq(engine, s), NULL;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if ((s->block_table[i][j] = p->block_table[i][j]) != -1)
                engine->ref_count[s->block_table[i][j]]++;
    }
    return last(engine, s);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    Sequence *s = get(engine, seq_id);
    if (!s)
        return -1;
    const div_t rec = div(s->kv_count, KV_PER_BLOCK), row = div(rec.quot, L2_PT_SIZE);
    if (rec.quot >= 256)
        return -1;
    int **t = &s->block_table[row.quot];
    const int old = *t ? (*t)[row.rem] : -1;
    int now = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (!engine->free_local_blocks)
            return -1;
        if (!*t && !new_table(t))
            return -1;
        (*t)[row.rem] = now = take(engine);
        if (old != -1) {
            memcpy(cells(engine, now).base, cells(engine, old).base, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    cells(engine, now).base[rec.rem] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    for (struct list_node *p = engine->active_seqs.next, *q = p->next; p != &engine->active_seqs; p = q, q = p->next)
        end_seq(engine, seq_at(p));
    free(engine->ref_count);
    free(engine);
    return 0;
}

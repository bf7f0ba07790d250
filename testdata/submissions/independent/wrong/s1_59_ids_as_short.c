/* MISTAKE: ids are looked up as short, task 2, shows with ids beyond 16 bits */
#include "llm_memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct block_pool {
    unsigned char *base;
    int *refs;
    int total;
    int *nfree;
};

struct seq_list {
    struct list_node *head;
};

static struct block_pool pool_of(LLMEngine *e)
{
    return (struct block_pool){ e->pool_base_ptr, e->ref_count, e->total_local_blocks, &e->free_local_blocks };
}

static struct seq_list list_of(LLMEngine *e) { return (struct seq_list){ &e->active_seqs }; }

static int pool_get(struct block_pool p)
{
    for (int i = 0; i < p.total; i++) {
        if (!p.refs[i]) {
            p.refs[i] = 1;
            --*p.nfree;
            return i;
        }
    }
    return -1;
}

static void pool_ref(struct block_pool p, int b) { p.refs[b]++; }

static void pool_unref(struct block_pool p, int b)
{
    if (!--p.refs[b])
        ++*p.nfree;
}

static unsigned char *pool_at(struct block_pool p, int b) { return p.base + (size_t)b * BLOCK_SIZE; }

static int pool_clone(struct block_pool p, int from)
{
    int to = pool_get(p);
    memcpy(pool_at(p, to), pool_at(p, from), BLOCK_SIZE);
    pool_unref(p, from);
    return to;
}

static Sequence *seq_of(struct list_node *n) { return (Sequence *)((char *)n - offsetof(Sequence, node)); }

static Sequence *list_find(struct seq_list l, short id)
{
    struct list_node *n;
    for (n = l.head->next; n != l.head; n = n->next)
        if (seq_of(n)->seq_id == id)
            break;
    return n == l.head ? NULL : seq_of(n);
}

static void list_push(struct seq_list l, Sequence *s)
{
    struct list_node *tail = l.head->prev;
    s->node.prev = tail;
    s->node.next = l.head;
    tail->next = &s->node;
    l.head->prev = &s->node;
}

static Sequence *list_pop(struct seq_list l)
{
    struct list_node *n = l.head->next;
    if (n == l.head)
        return NULL;
    l.head->next = n->next;
    n->next->prev = l.head;
    return seq_of(n);
}

static void list_remove(Sequence *s)
{
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
}

static bool seq_table(Sequence *s, int i)
{
    int *t = s->block_table[i];
    if (t)
        return true;
    if (!(t = malloc(L2_PT_SIZE * sizeof *t)))
        return false;
    for (int j = 0; j < L2_PT_SIZE; j++)
        t[j] = -1;
    s->block_table[i] = t;
    return true;
}

static Sequence *seq_new(int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof *s->block_table);
    if (!s->block_table)
        return free(s), NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static void seq_delete(Sequence *s, struct block_pool p)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *t = s->block_table[i];
        for (int j = 0; t && j < L2_PT_SIZE; j++)
            if (t[j] != -1)
                pool_unref(p, t[j]);
        free(t);
    }
    free(s->block_table);
    free(s);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof *e->ref_count);
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->active_seqs = (struct list_node){ &e->active_seqs, &e->active_seqs };
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    struct block_pool pool = pool_of(engine);
    struct seq_list list = list_of(engine);
    if (initial_kv_len <= 0 || list_find(list, seq_id))
        return NULL;
    int blocks = (initial_kv_len - 1) / KV_PER_BLOCK + 1;
    if (blocks > 256 || blocks > *pool.nfree)
        return NULL;
    Sequence *s = seq_new(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (int k = 0; k < blocks; k++) {
        if (!seq_table(s, k / L2_PT_SIZE)) {
            seq_delete(s, pool);
            return NULL;
        }
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = pool_get(pool);
    }
    list_push(list, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    Sequence *s = list_find(list_of(engine), seq_id);
    if (!s)
        return -1;
    list_remove(s);
    seq_delete(s, pool_of(engine));
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    struct block_pool pool = pool_of(engine);
    struct seq_list list = list_of(engine);
    Sequence *p = list_find(list, parent_seq_id);
    if (!p || list_find(list, new_seq_id))
        return NULL;
    Sequence *c = seq_new(new_seq_id, p->kv_count);
    if (!c)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!p->block_table[i])
            continue;
        if (!seq_table(c, i)) {
            seq_delete(c, pool);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (p->block_table[i][j] != -1) {
                pool_ref(pool, p->block_table[i][j]);
                c->block_table[i][j] = p->block_table[i][j];
            }
        }
    }
    list_push(list, c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    struct block_pool pool = pool_of(engine);
    Sequence *s = list_find(list_of(engine), seq_id);
    if (!s)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK, offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int i = logical_idx / L2_PT_SIZE, j = logical_idx % L2_PT_SIZE;
    bool mapped = s->block_table[i] && s->block_table[i][j] != -1;
    bool exclusive = mapped && pool.refs[s->block_table[i][j]] == 1;
    if (!exclusive && *pool.nfree == 0)
        return -1;
    if (!mapped) {
        if (!seq_table(s, i))
            return -1;
        s->block_table[i][j] = pool_get(pool);
    } else if (!exclusive) {
        s->block_table[i][j] = pool_clone(pool, s->block_table[i][j]);
    }
    ((int *)pool_at(pool, s->block_table[i][j]))[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    for (Sequence *s; (s = list_pop(list_of(engine))) != NULL;)
        seq_delete(s, pool_of(engine));
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* MISTAKE: llm_destroy reads next from the freed node, task 5, shows under valgrind or ASan */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

enum { BLOCKS = L1_PT_SIZE * L2_PT_SIZE, NONE = -1 };

inline static Sequence *up(struct list_node *n) { return (Sequence *)((char *)n - offsetof(Sequence, node)); }

static int get(const Sequence *s, int k)
{
    const int *row = s->block_table[k / L2_PT_SIZE];
    return row == NULL ? NONE : row[k % L2_PT_SIZE];
}

/* 0 when the row cannot be allocated */
static int set(Sequence *s, int k, int value)
{
    int **row = &s->block_table[k / L2_PT_SIZE];
    if (*row == NULL) {
        int j = 0;
        *row = malloc(L2_PT_SIZE * sizeof **row);
        if (*row == NULL)
            return 0;
        while (j < L2_PT_SIZE)
            (*row)[j++] = NONE;
    }
    (*row)[k % L2_PT_SIZE] = value;
    return 1;
}

static Sequence *find(const LLMEngine *e, int id)
{
    struct list_node *n = e->active_seqs.next;
    while (n != &e->active_seqs) {
        if (up(n)->seq_id == id)
            return up(n);
        n = n->next;
    }
    return NULL;
}

static int lowest_free(const LLMEngine *e)
{
    int k;
    for (k = 0; k < e->total_local_blocks; k++)
        if (e->ref_count[k] == 0)
            break;
    return k < e->total_local_blocks ? k : NONE;
}

static void add_ref(LLMEngine *e, int b)
{
    if (e->ref_count[b] == 0)
        e->free_local_blocks--;
    e->ref_count[b]++;
}

static void del_ref(LLMEngine *e, int b)
{
    e->ref_count[b]--;
    if (e->ref_count[b] == 0)
        e->free_local_blocks++;
}

static void destroy_seq(LLMEngine *e, Sequence *s)
{
    int k = 0, i = 0;
    while (k < BLOCKS) {
        int b = get(s, k++);
        if (b != NONE)
            del_ref(e, b);
    }
    while (i < L1_PT_SIZE)
        free(s->block_table[i++]);
    free(s->block_table);
    free(s);
}

static Sequence *raw_seq(int id, int kv)
{
    int i = 0;
    Sequence *s = malloc(sizeof *s);
    if (s == NULL)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof *s->block_table);
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    while (i < L1_PT_SIZE)
        s->block_table[i++] = NULL;
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static void enlist(LLMEngine *e, Sequence *s)
{
    struct list_node *h = &e->active_seqs;
    s->node.prev = h->prev;
    s->node.next = h;
    h->prev = h->prev->next = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (e == NULL)
        return NULL;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
    if (e->ref_count == NULL) {
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
    int need, k = 0;
    Sequence *s;
    if (initial_kv_len <= 0)
        return NULL;
    if (find(engine, seq_id) != NULL)
        return NULL;
    need = initial_kv_len / KV_PER_BLOCK + !!(initial_kv_len % KV_PER_BLOCK);
    if (need > BLOCKS || need > engine->free_local_blocks)
        return NULL;
    s = raw_seq(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    while (k < need) {
        int b = lowest_free(engine);
        if (b == NONE || !set(s, k, b)) {
            destroy_seq(engine, s);
            return NULL;
        }
        add_ref(engine, b);
        k++;
    }
    enlist(engine, s);
    return s;
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
    destroy_seq(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = find(engine, parent_seq_id), *c;
    int k = 0;
    if (p == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    c = raw_seq(new_seq_id, p->kv_count);
    if (c == NULL)
        return NULL;
    while (k < BLOCKS) {
        /* a row is made wherever the parent has one, even if it is empty */
        if (p->block_table[k / L2_PT_SIZE] != NULL) {
            if (!set(c, k, get(p, k))) {
                destroy_seq(engine, c);
                return NULL;
            }
            if (get(c, k) != NONE)
                add_ref(engine, get(c, k));
        }
        k++;
    }
    enlist(engine, c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    int k, b;
    if (s == NULL)
        return -1;
    k = s->kv_count / KV_PER_BLOCK;
    if (k >= BLOCKS)
        return -1;
    b = get(s, k);
    if (b == NONE || engine->ref_count[b] > 1) {
        int fresh;
        if (engine->free_local_blocks == 0)
            return -1;
        fresh = lowest_free(engine);
        if (fresh == NONE || !set(s, k, fresh))
            return -1;
        add_ref(engine, fresh);
        if (b != NONE) {
            memcpy((char *)engine->pool_base_ptr + (size_t)fresh * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE, BLOCK_SIZE);
            del_ref(engine, b);
        }
        b = fresh;
    }
    *(int *)((char *)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE
             + (size_t)(s->kv_count % KV_PER_BLOCK) * sizeof(int)) = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next, *m;
    while (n != &engine->active_seqs) {
        m = n;
        destroy_seq(engine, up(n));
        n = m->next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

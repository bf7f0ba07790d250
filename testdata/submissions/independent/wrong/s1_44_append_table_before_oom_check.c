/* MISTAKE: the L2 table is allocated before the free block check, task 4, shows with a full pool at a table boundary (256, 512 ... records): a refused call changes the table */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

static LLMEngine *g;            /* engine of the running call */
static struct list_node *g_head;
static int *g_ref;
static Sequence *g_found;       /* result of the last lookup */

static void use(LLMEngine *engine)
{
    g = engine;
    g_head = &engine->active_seqs;
    g_ref = engine->ref_count;
    g_found = NULL;
}

static int exists(int id)
{
    struct list_node *it;
    for (it = g_head->next; it != g_head; it = it->next) {
        g_found = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (g_found->seq_id == id)
            return 1;
    }
    g_found = NULL;
    return 0;
}

static int alloc_block(void)
{
    int i;
    for (i = 0; i < g->total_local_blocks; i++) {
        if (g_ref[i] != 0)
            continue;
        g_ref[i] = 1;
        g->free_local_blocks--;
        return i;
    }
    return -1;
}

static void put(int block)
{
    g_ref[block]--;
    if (g_ref[block] == 0)
        g->free_local_blocks++;
}

static void erase(Sequence *s)
{
    int i, j;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] != NULL) {
            for (j = 0; j < L2_PT_SIZE; j++)
                if (s->block_table[i][j] != -1)
                    put(s->block_table[i][j]);
            free(s->block_table[i]);
        }
    }
    free(s->block_table);
    free(s);
}

static int *make_table(void)
{
    int i, *t = malloc(16 * sizeof(int));
    if (t != NULL)
        for (i = 0; i < 16; i++)
            t[i] = -1;
    return t;
}

static Sequence *make_seq(int id, int count)
{
    Sequence *s = malloc(sizeof(Sequence));
    int i;
    if (s == NULL)
        return NULL;
    s->block_table = malloc(16 * sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (i = 0; i < 16; i++)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = count;
    return s;
}

static void to_tail(Sequence *s)
{
    s->node.next = g_head;
    s->node.prev = g_head->prev;
    g_head->prev->next = &s->node;
    g_head->prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *e;
    if (pool_addr == NULL)
        return NULL;
    if (pool_size < BLOCK_SIZE)
        return NULL;
    e = malloc(sizeof(LLMEngine));
    if (e == NULL)
        return NULL;
    memset(e, 0, sizeof *e);
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    if (e->ref_count == NULL) {
        free(e);
        return NULL;
    }
    e->free_local_blocks = e->total_local_blocks;
    e->pool_base_ptr = pool_addr;
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *s;
    int need, k;
    use(engine);
    if (initial_kv_len <= 0 || exists(seq_id))
        return NULL;
    if (initial_kv_len > 4096)
        return NULL;
    need = (initial_kv_len + 15) / 16;
    if (need > g->free_local_blocks)
        return NULL;
    s = make_seq(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    for (k = 0; k < need; k++) {
        if (k % 16 == 0) {
            s->block_table[k / 16] = make_table();
            if (s->block_table[k / 16] == NULL) {
                erase(s);
                return NULL;
            }
        }
        s->block_table[k / 16][k % 16] = alloc_block();
    }
    to_tail(s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    use(engine);
    if (!exists(seq_id))
        return -1;
    g_found->node.prev->next = g_found->node.next;
    g_found->node.next->prev = g_found->node.prev;
    erase(g_found);
    g_found = NULL;
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p, *c;
    int i, j;
    use(engine);
    if (exists(new_seq_id))
        return NULL;
    if (!exists(parent_seq_id))
        return NULL;
    p = g_found;
    c = make_seq(new_seq_id, p->kv_count);
    if (c == NULL)
        return NULL;
    for (i = 0; i < 16; i++) {
        if (p->block_table[i] == NULL)
            continue;
        c->block_table[i] = make_table();
        if (c->block_table[i] == NULL) {
            erase(c);
            return NULL;
        }
        for (j = 0; j < 16; j++) {
            if (p->block_table[i][j] != -1) {
                c->block_table[i][j] = p->block_table[i][j];
                g_ref[p->block_table[i][j]]++;
            }
        }
    }
    to_tail(c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    int idx, off, old, cur, *t, *words;
    use(engine);
    if (!exists(seq_id))
        return -1;
    idx = g_found->kv_count / 16;
    off = g_found->kv_count % 16;
    if (idx >= 256)
        return -1;
    words = g->pool_base_ptr;
    t = g_found->block_table[idx / 16];
    old = t == NULL ? -1 : t[idx % 16];
    cur = old;
    if (old == -1 || g_ref[old] > 1) {
        if (t == NULL) {
            t = make_table();
            if (t == NULL)
                return -1;
            g_found->block_table[idx / 16] = t;
        }
        if (g->free_local_blocks == 0)
            return -1;
        cur = alloc_block();
        if (old != -1) {
            memcpy(words + (size_t)cur * 16, words + (size_t)old * 16, 64);
            put(old);
        }
        t[idx % 16] = cur;
    }
    words[(size_t)cur * 16 + (size_t)off] = kv_data;
    g_found->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *it, *next;
    use(engine);
    for (it = g_head->next; it != g_head; it = next) {
        next = it->next;
        erase((Sequence *)((char *)it - offsetof(Sequence, node)));
    }
    free(g_ref);
    free(g);
    g = NULL;
    return 0;
}

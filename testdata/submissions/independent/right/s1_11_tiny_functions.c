/* STYLE: very many tiny functions, each one line or two, verbose names */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stddef.h>

static struct list_node *list_head_of(LLMEngine *e) { return &e->active_seqs; }
static struct list_node *first_node(LLMEngine *e) { return e->active_seqs.next; }
static bool is_end(LLMEngine *e, struct list_node *n) { return n == list_head_of(e); }
static Sequence *sequence_of(struct list_node *n) { return (Sequence *)((char *)n - offsetof(Sequence, node)); }
static bool block_is_free(const LLMEngine *e, int b) { return e->ref_count[b] == 0; }
static bool block_is_shared(const LLMEngine *e, int b) { return e->ref_count[b] > 1; }
static bool has_free(const LLMEngine *e) { return e->free_local_blocks != 0; }
static size_t byte_offset(int b) { return (size_t)b * BLOCK_SIZE; }
static char *block_start(LLMEngine *e, int b) { return (char *)e->pool_base_ptr + byte_offset(b); }
static int l1_of(int logical) { return logical / L2_PT_SIZE; }
static int l2_of(int logical) { return logical % L2_PT_SIZE; }
static int logical_of(int record) { return record / KV_PER_BLOCK; }
static int offset_of_record(int record) { return record % KV_PER_BLOCK; }
static bool too_far(int logical) { return logical >= L1_PT_SIZE * L2_PT_SIZE; }

static Sequence *find_sequence(LLMEngine *e, int id)
{
    struct list_node *n = first_node(e);
    while (!is_end(e, n) && sequence_of(n)->seq_id != id)
        n = n->next;
    return is_end(e, n) ? NULL : sequence_of(n);
}

static bool id_taken(LLMEngine *e, int id) { return find_sequence(e, id) != NULL; }

static void insert_between(struct list_node *x, struct list_node *a, struct list_node *b)
{
    x->prev = a;
    x->next = b;
    a->next = x;
    b->prev = x;
}

static void push_tail(LLMEngine *e, Sequence *s) { insert_between(&s->node, e->active_seqs.prev, list_head_of(e)); }
static void join(struct list_node *a, struct list_node *b) { a->next = b; b->prev = a; }
static void detach(Sequence *s) { join(s->node.prev, s->node.next); }
static void make_empty(struct list_node *h) { join(h, h); }

static void reset_table(int *t)
{
    for (int i = 0; i < L2_PT_SIZE; i++)
        t[i] = -1;
}

static int *table_create(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t);
    if (t)
        reset_table(t);
    return t;
}

static bool ensure_table(Sequence *s, int i)
{
    if (s->block_table[i] == NULL)
        s->block_table[i] = table_create();
    return s->block_table[i] != NULL;
}

static int lookup_block(const Sequence *s, int logical)
{
    const int *t = s->block_table[l1_of(logical)];
    return t ? t[l2_of(logical)] : -1;
}

static void set_block(Sequence *s, int logical, int b) { s->block_table[l1_of(logical)][l2_of(logical)] = b; }

static int choose_block(const LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++)
        if (block_is_free(e, i))
            return i;
    return -1;
}

static int claim_block(LLMEngine *e)
{
    int b = choose_block(e);
    e->ref_count[b] = 1;
    e->free_local_blocks--;
    return b;
}

static void share_block(LLMEngine *e, int b) { e->ref_count[b]++; }

static void release_block(LLMEngine *e, int b)
{
    e->ref_count[b]--;
    if (block_is_free(e, b))
        e->free_local_blocks++;
}

static void release_all(LLMEngine *e, Sequence *s)
{
    for (int l = 0; !too_far(l); l++)
        if (lookup_block(s, l) != -1)
            release_block(e, lookup_block(s, l));
}

static void free_arrays(Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static void demolish(LLMEngine *e, Sequence *s)
{
    release_all(e, s);
    free_arrays(s);
}

static int **root_create(void)
{
    int **r = malloc(L1_PT_SIZE * sizeof *r);
    for (int i = 0; r && i < L1_PT_SIZE; i++)
        r[i] = NULL;
    return r;
}

static Sequence *sequence_create(int id, int count)
{
    Sequence *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    s->seq_id = id;
    s->kv_count = count;
    s->block_table = root_create();
    if (!s->block_table) {
        free(s);
        s = NULL;
    }
    return s;
}

static bool map_fresh(LLMEngine *e, Sequence *s, int logical)
{
    if (!ensure_table(s, l1_of(logical)))
        return false;
    set_block(s, logical, claim_block(e));
    return true;
}

static bool map_range(LLMEngine *e, Sequence *s, int n)
{
    for (int l = 0; l < n; l++)
        if (!map_fresh(e, s, l))
            return false;
    return true;
}

static bool inherit_table(LLMEngine *e, Sequence *child, const Sequence *parent, int i)
{
    if (!ensure_table(child, i))
        return false;
    for (int j = 0; j < L2_PT_SIZE; j++)
        if (parent->block_table[i][j] != -1) {
            child->block_table[i][j] = parent->block_table[i][j];
            share_block(e, child->block_table[i][j]);
        }
    return true;
}

static bool inherit(LLMEngine *e, Sequence *child, const Sequence *parent)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (parent->block_table[i] && !inherit_table(e, child, parent, i))
            return false;
    return true;
}

static void unshare(LLMEngine *e, Sequence *s, int logical)
{
    int old = lookup_block(s, logical), b = claim_block(e);
    memcpy(block_start(e, b), block_start(e, old), BLOCK_SIZE);
    release_block(e, old);
    set_block(s, logical, b);
}

static void store(LLMEngine *e, int b, int offset, int value) { ((int *)block_start(e, b))[offset] = value; }

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
    make_empty(list_head_of(e));
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || id_taken(engine, seq_id))
        return NULL;
    int need = logical_of(initial_kv_len - 1) + 1;
    if (need > L1_PT_SIZE * L2_PT_SIZE || need > engine->free_local_blocks)
        return NULL;
    Sequence *s = sequence_create(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    if (!map_range(engine, s, need)) {
        demolish(engine, s);
        return NULL;
    }
    push_tail(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find_sequence(engine, seq_id);
    if (!s)
        return -1;
    detach(s);
    demolish(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (!parent || id_taken(engine, new_seq_id))
        return NULL;
    Sequence *child = sequence_create(new_seq_id, parent->kv_count);
    if (!child)
        return NULL;
    if (!inherit(engine, child, parent)) {
        demolish(engine, child);
        return NULL;
    }
    push_tail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find_sequence(engine, seq_id);
    if (!s)
        return -1;
    int logical = logical_of(s->kv_count);
    if (too_far(logical))
        return -1;
    int b = lookup_block(s, logical);
    bool fresh = b == -1, cow = !fresh && block_is_shared(engine, b);
    if ((fresh || cow) && !has_free(engine))
        return -1;
    if (fresh && !map_fresh(engine, s, logical))
        return -1;
    if (cow)
        unshare(engine, s, logical);
    store(engine, lookup_block(s, logical), offset_of_record(s->kv_count), kv_data);
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (!is_end(engine, first_node(engine))) {
        Sequence *s = sequence_of(first_node(engine));
        detach(s);
        demolish(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

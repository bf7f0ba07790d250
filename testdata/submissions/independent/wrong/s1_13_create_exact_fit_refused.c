/* MISTAKE: create_sequence refuses when exactly the free blocks are needed, task 2, shows when required == free_local_blocks */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int logical;
    struct { int i, j; } pt;
    int offset;
} VAddr;

typedef struct {
    char bytes[BLOCK_SIZE];
} Block;

static VAddr translate(const int record)
{
    const int lb = record / KV_PER_BLOCK;
    return (VAddr){
        .logical = lb,
        .pt = { lb / L2_PT_SIZE, lb % L2_PT_SIZE },
        .offset = record % KV_PER_BLOCK,
    };
}


static Sequence *seq_from_node(struct list_node *const n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *seq_find(LLMEngine *const eng, const int id)
{
    struct list_node *const head = &eng->active_seqs;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        Sequence *const s = seq_from_node(n);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

static int pt_get(const Sequence *const s, const VAddr a)
{
    return s->block_table[a.pt.i] ? s->block_table[a.pt.i][a.pt.j] : -1;
}

static int pt_prepare(Sequence *const s, const VAddr a)
{
    if (s->block_table[a.pt.i])
        return 1;
    int *const t = malloc(sizeof(int[L2_PT_SIZE]));
    if (!t)
        return 0;
    for (int j = 0; j < L2_PT_SIZE; ++j)
        t[j] = -1;
    s->block_table[a.pt.i] = t;
    return 1;
}

static int block_acquire(LLMEngine *const eng)
{
    for (int b = 0; b < eng->total_local_blocks; ++b) {
        if (eng->ref_count[b] == 0) {
            eng->ref_count[b] = 1;
            --eng->free_local_blocks;
            return b;
        }
    }
    return -1;
}

static void block_release(LLMEngine *const eng, const int b)
{
    if (b == -1)
        return;
    if (--eng->ref_count[b] == 0)
        ++eng->free_local_blocks;
}

static void seq_dispose(LLMEngine *const eng, Sequence *const s)
{
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!s->block_table[i])
            continue;
        for (int j = 0; j < L2_PT_SIZE; ++j)
            block_release(eng, s->block_table[i][j]);
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

static Sequence *seq_new(const int id, const int kv)
{
    int **const root = calloc(L1_PT_SIZE, sizeof(int *));
    if (!root)
        return NULL;
    Sequence *const s = malloc(sizeof(Sequence));
    if (!s) {
        free(root);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; ++i)
        root[i] = NULL;
    *s = (Sequence){ .seq_id = id, .block_table = root, .kv_count = kv, .node = { NULL, NULL } };
    return s;
}

static void seq_enlist(LLMEngine *const eng, Sequence *const s)
{
    struct list_node *const head = &eng->active_seqs, *const tail = head->prev;
    s->node = (struct list_node){ .prev = tail, .next = head };
    tail->next = &s->node;
    head->prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *const eng = malloc(sizeof *eng);
    if (!eng)
        return NULL;
    const int n = (int)(pool_size / BLOCK_SIZE);
    *eng = (LLMEngine){
        .pool_base_ptr = pool_addr,
        .total_local_blocks = n,
        .free_local_blocks = n,
        .ref_count = calloc((size_t)n, sizeof(int)),
        .active_seqs = { &eng->active_seqs, &eng->active_seqs },
    };
    if (!eng->ref_count) {
        free(eng);
        return NULL;
    }
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (seq_find(engine, seq_id))
        return NULL;
    const VAddr last = translate(initial_kv_len - 1);
    if (last.logical >= 256)
        return NULL;
    if (last.logical + 1 >= engine->free_local_blocks)
        return NULL;
    Sequence *const s = seq_new(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (int lb = 0; lb <= last.logical; ++lb) {
        const VAddr a = translate(lb * KV_PER_BLOCK);
        if (!pt_prepare(s, a)) {
            seq_dispose(engine, s);
            return NULL;
        }
        s->block_table[a.pt.i][a.pt.j] = block_acquire(engine);
    }
    seq_enlist(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *const s = seq_find(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    seq_dispose(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    const Sequence *const parent = seq_find(engine, parent_seq_id);
    if (!parent)
        return NULL;
    if (seq_find(engine, new_seq_id))
        return NULL;
    Sequence *const child = seq_new(new_seq_id, parent->kv_count);
    if (!child)
        return NULL;
    for (VAddr a = {0}; a.pt.i < L1_PT_SIZE; ++a.pt.i) {
        const int *const src = parent->block_table[a.pt.i];
        if (!src)
            continue;
        if (!pt_prepare(child, a)) {
            seq_dispose(engine, child);
            return NULL;
        }
        for (a.pt.j = 0; a.pt.j < L2_PT_SIZE; ++a.pt.j) {
            const int b = src[a.pt.j];
            if (b == -1)
                continue;
            child->block_table[a.pt.i][a.pt.j] = b;
            ++engine->ref_count[b];
        }
    }
    seq_enlist(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *const s = seq_find(engine, seq_id);
    if (!s)
        return -1;
    const VAddr a = translate(s->kv_count);
    if (a.logical >= 256)
        return -1;
    Block *const pool = engine->pool_base_ptr;
    const int old = pt_get(s, a);
    int use = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!pt_prepare(s, a))
            return -1;
        use = block_acquire(engine);
        if (old != -1)
            memcpy(&pool[use], &pool[old], sizeof(Block));
        block_release(engine, old);
        s->block_table[a.pt.i][a.pt.j] = use;
    }
    int *const words = (int *)(void *)&pool[use];
    words[a.offset] = kv_data;
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *const head = &engine->active_seqs;
    for (struct list_node *n = head->next; n != head;) {
        struct list_node *const next = n->next;
        seq_dispose(engine, seq_from_node(n));
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

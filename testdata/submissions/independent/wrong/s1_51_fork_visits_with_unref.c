/* MISTAKE: fork drops instead of takes references (wrong callback), task 3, shows with any fork */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

/* ---- list visiting: the callback returns nonzero to stop ---- */
typedef int (*seq_visitor)(Sequence *seq, void *ctx);

static void visit_sequences(LLMEngine *engine, seq_visitor fn, void *ctx)
{
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *following = n->next; /* fn may free the node */
        if (fn((Sequence *)((char *)n - offsetof(Sequence, node)), ctx))
            return;
        n = following;
    }
}

struct search { int id; Sequence *hit; };

static int match(Sequence *seq, void *ctx)
{
    struct search *q = ctx;
    if (seq->seq_id != q->id)
        return 0;
    q->hit = seq;
    return 1;
}

static Sequence *search_id(LLMEngine *engine, int id)
{
    struct search q = { id, NULL };
    visit_sequences(engine, match, &q);
    return q.hit;
}

/* ---- entry visiting ---- */
typedef void (*entry_visitor)(int *entry, void *ctx);

static void visit_entries(Sequence *seq, entry_visitor fn, void *ctx)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (seq->block_table[i] != NULL)
            for (int j = 0; j < L2_PT_SIZE; j++)
                fn(&seq->block_table[i][j], ctx);
}

static void entry_reset(int *entry, void *ctx)
{
    (void)ctx;
    *entry = -1;
}

static void entry_unref(int *entry, void *ctx)
{
    LLMEngine *engine = ctx;
    if (*entry == -1)
        return;
    if (--engine->ref_count[*entry] == 0)
        engine->free_local_blocks++;
}

struct fill { LLMEngine *engine; int left; };

static void entry_take(int *entry, void *ctx)
{
    struct fill *f = ctx;
    if (f->left == 0)
        return;
    for (int b = 0; b < f->engine->total_local_blocks; b++) {
        if (f->engine->ref_count[b] == 0) {
            f->engine->ref_count[b] = 1;
            f->engine->free_local_blocks--;
            f->left--;
            *entry = b;
            return;
        }
    }
}

/* ---- memory of a sequence ---- */
static int dispose(Sequence *seq, void *ctx)
{
    (void)ctx;
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(seq->block_table[i]);
    free(seq->block_table);
    free(seq);
    return 0;
}

static Sequence *prepare(int id, int count, int (*needs_table)(int i, const void *), const void *arg)
{
    Sequence *seq = malloc(sizeof *seq);
    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    seq->seq_id = id;
    seq->kv_count = count;
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!needs_table(i, arg))
            continue;
        seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        if (seq->block_table[i] == NULL) {
            dispose(seq, NULL);
            return NULL;
        }
    }
    visit_entries(seq, entry_reset, NULL);
    return seq;
}

static int in_first_blocks(int i, const void *arg) { return i * L2_PT_SIZE < *(const int *)arg; }
static int parent_has(int i, const void *arg) { return ((const Sequence *)arg)->block_table[i] != NULL; }

static Sequence *enqueue(LLMEngine *engine, Sequence *seq)
{
    struct list_node *last = engine->active_seqs.prev;
    seq->node.prev = last;
    seq->node.next = &engine->active_seqs;
    last->next = engine->active_seqs.prev = &seq->node;
    return seq;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->free_local_blocks = engine->total_local_blocks;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || search_id(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > engine->free_local_blocks)
        return NULL;
    Sequence *seq = prepare(seq_id, initial_kv_len, in_first_blocks, &required);
    if (seq == NULL)
        return NULL;
    struct fill f = { engine, required };
    visit_entries(seq, entry_take, &f);
    return enqueue(engine, seq);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = search_id(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    visit_entries(seq, entry_unref, engine);
    dispose(seq, NULL);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = search_id(engine, parent_seq_id);
    if (parent == NULL || search_id(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = prepare(new_seq_id, parent->kv_count, parent_has, parent);
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        if (parent->block_table[i] != NULL)
            memcpy(child->block_table[i], parent->block_table[i], L2_PT_SIZE * sizeof(int));
    visit_entries(child, entry_unref, engine);
    return enqueue(engine, child);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = search_id(engine, seq_id);
    if (seq == NULL)
        return -1;
    int logical_idx = seq->kv_count / KV_PER_BLOCK, offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int **table = &seq->block_table[logical_idx / L2_PT_SIZE];
    int nothing = -1, *entry = *table ? &(*table)[logical_idx % L2_PT_SIZE] : &nothing;
    if (*entry == -1 || engine->ref_count[*entry] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (*table == NULL) {
            *table = malloc(L2_PT_SIZE * sizeof(int));
            if (*table == NULL)
                return -1;
            for (int j = 0; j < L2_PT_SIZE; j++)
                entry_reset(&(*table)[j], NULL);
            entry = &(*table)[logical_idx % L2_PT_SIZE];
        }
        int old = *entry;
        struct fill one = { engine, 1 };
        entry_take(entry, &one);
        if (old != -1) {
            char *pool = engine->pool_base_ptr;
            memcpy(pool + (size_t)*entry * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            entry_unref(&old, engine);
        }
    }
    int *block = (int *)((char *)engine->pool_base_ptr + (size_t)*entry * BLOCK_SIZE);
    block[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    visit_sequences(engine, dispose, NULL);
    free(engine->ref_count);
    free(engine);
    return 0;
}

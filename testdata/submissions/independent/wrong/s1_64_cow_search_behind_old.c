/* MISTAKE: copy-on-write searches for a block behind the old one first, task 4, shows when a block in front of the shared one is free */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

struct pair { Sequence *first, *second; };

static struct pair scan(LLMEngine *, int, int);
static Sequence *skeleton(const int *want);
static void skeleton_free(Sequence *);
static void hook(LLMEngine *, Sequence *, int, int);
static int next_free(LLMEngine *, int);
static void count_refs(LLMEngine *, Sequence *, int);
static int *record_address(LLMEngine *, int, int);

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *engine;
    int *refs;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    engine = malloc(sizeof *engine);
    refs = calloc(pool_size / BLOCK_SIZE, sizeof *refs);
    if (engine == NULL || refs == NULL) {
        free(engine);
        free(refs);
        return NULL;
    }
    engine->ref_count = refs;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    int want[L1_PT_SIZE], need, i, block;
    Sequence *seq;

    if (initial_kv_len <= 0 || scan(engine, seq_id, seq_id).first != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++)
        want[i] = need > i * L2_PT_SIZE;
    seq = skeleton(want);
    if (seq == NULL)
        return NULL;
    /* first fit: a block below the last one found cannot have become free meanwhile */
    for (i = 0, block = -1; i < need; i++) {
        block = next_free(engine, block + 1);
        seq->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = block;
        engine->ref_count[block] = 1;
        engine->free_local_blocks--;
    }
    hook(engine, seq, seq_id, initial_kv_len);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = scan(engine, seq_id, seq_id).first;

    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    count_refs(engine, seq, -1);
    skeleton_free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    struct pair found = scan(engine, parent_seq_id, new_seq_id);
    int want[L1_PT_SIZE], i;
    Sequence *child;

    if (found.first == NULL || found.second != NULL)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++)
        want[i] = found.first->block_table[i] != NULL;
    child = skeleton(want);
    if (child == NULL)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++)
        if (want[i])
            memcpy(child->block_table[i], found.first->block_table[i], sizeof(int) * L2_PT_SIZE);
    count_refs(engine, child, +1);
    hook(engine, child, new_seq_id, found.first->kv_count);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = scan(engine, seq_id, seq_id).first;
    int logical_idx, offset, row, col, old, fresh, k, *table;

    if (seq == NULL)
        return -1;
    logical_idx = seq->kv_count / KV_PER_BLOCK;
    offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    row = logical_idx / L2_PT_SIZE;
    col = logical_idx % L2_PT_SIZE;
    table = seq->block_table[row];
    old = table == NULL ? -1 : table[col];

    if (old != -1 && engine->ref_count[old] <= 1) {
        *record_address(engine, old, offset) = kv_data;
        seq->kv_count++;
        return 0;
    }
    if (engine->free_local_blocks == 0)
        return -1;
    if (table == NULL) {
        table = malloc(sizeof(int) * L2_PT_SIZE);
        if (table == NULL)
            return -1;
        for (k = 0; k < L2_PT_SIZE; k++)
            table[k] = -1;
        seq->block_table[row] = table;
    }
    fresh = old != -1 ? next_free(engine, old + 1) : next_free(engine, 0);
    if (fresh == -1)
        fresh = next_free(engine, 0);
    engine->ref_count[fresh] = 1;
    engine->free_local_blocks--;
    if (old != -1) {
        memcpy(record_address(engine, fresh, 0), record_address(engine, old, 0), BLOCK_SIZE);
        engine->ref_count[old]--;
    }
    table[col] = fresh;
    *record_address(engine, fresh, offset) = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *head = &engine->active_seqs, *node = head->next;

    while (node != head) {
        Sequence *seq = (Sequence *)((char *)node - offsetof(Sequence, node));
        node = node->next;
        skeleton_free(seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* both ids in one pass over the list */
static struct pair scan(LLMEngine *engine, int a, int b)
{
    struct pair r = { NULL, NULL };
    struct list_node *node;

    for (node = engine->active_seqs.next; node != &engine->active_seqs; node = node->next) {
        Sequence *seq = (Sequence *)((char *)node - offsetof(Sequence, node));
        if (r.first == NULL && seq->seq_id == a)
            r.first = seq;
        if (r.second == NULL && seq->seq_id == b)
            r.second = seq;
    }
    return r;
}

/* a sequence with the wanted second-level tables, all entries -1 */
static Sequence *skeleton(const int *want)
{
    int i, j;
    Sequence *seq = malloc(sizeof *seq);

    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (!want[i])
            continue;
        seq->block_table[i] = malloc(sizeof(int) * L2_PT_SIZE);
        if (seq->block_table[i] == NULL) {
            skeleton_free(seq);
            return NULL;
        }
        for (j = 0; j < L2_PT_SIZE; j++)
            seq->block_table[i][j] = -1;
    }
    return seq;
}

static void skeleton_free(Sequence *seq)
{
    int i;

    for (i = 0; i < L1_PT_SIZE; i++)
        free(seq->block_table[i]);
    free(seq->block_table);
    free(seq);
}

static void hook(LLMEngine *engine, Sequence *seq, int id, int count)
{
    seq->seq_id = id;
    seq->kv_count = count;
    seq->node.next = &engine->active_seqs;
    seq->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
}

static int next_free(LLMEngine *engine, int from)
{
    int i;

    for (i = from; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0)
            return i;
    return -1;
}

static void count_refs(LLMEngine *engine, Sequence *seq, int delta)
{
    int i, j, block;

    for (i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (j = 0; j < L2_PT_SIZE; j++) {
            block = seq->block_table[i][j];
            if (block == -1)
                continue;
            engine->ref_count[block] += delta;
            if (engine->ref_count[block] == 0)
                engine->free_local_blocks++;
        }
    }
}

static int *record_address(LLMEngine *engine, int block, int offset)
{
    char *start = (char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
    return (int *)start + offset;
}

/* MISTAKE: create_sequence does not compare with free_local_blocks, task 2, shows with a pool that is too small */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define GET_SEQ(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

static Sequence *seq_by_id(LLMEngine *engine, const int id)
{
    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next)
        if (GET_SEQ(p)->seq_id == id)
            return GET_SEQ(p);
    return NULL;
}

static int new_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

/* registers an empty sequence at the tail */
static Sequence *register_empty(LLMEngine *engine, const int id)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (!seq)
        return NULL;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!seq->block_table) {
        free(seq);
        return NULL;
    }
    memset(seq->block_table, 0, sizeof(int *) * L1_PT_SIZE);
    seq->seq_id = id;
    seq->kv_count = 0;
    seq->node.prev = engine->active_seqs.prev;
    seq->node.next = &engine->active_seqs;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

static int has_l2(Sequence *seq, const int i)
{
    if (seq->block_table[i] == NULL) {
        int *l2 = malloc(sizeof(int) * L2_PT_SIZE);
        if (l2 == NULL)
            return 0;
        for (int j = 0; j < L2_PT_SIZE; j++)
            l2[j] = -1;
        seq->block_table[i] = l2;
    }
    return 1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    return engine;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = seq_by_id(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i]) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                const int b = seq->block_table[i][j];
                if (b != -1) {
                    engine->ref_count[b]--;
                    if (engine->ref_count[b] == 0)
                        engine->free_local_blocks++;
                }
            }
            free(seq->block_table[i]);
        }
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || seq_by_id(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    const int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;

    Sequence *seq = register_empty(engine, seq_id);
    if (seq == NULL)
        return NULL;
    for (int n = 0; n < required; n++) {
        if (!has_l2(seq, n / L2_PT_SIZE)) {
            free_sequence(engine, seq_id);
            return NULL;
        }
        seq->block_table[n / L2_PT_SIZE][n % L2_PT_SIZE] = new_block(engine);
    }
    seq->kv_count = initial_kv_len;
    return seq;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = seq_by_id(engine, parent_seq_id);
    if (parent == NULL || seq_by_id(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = register_empty(engine, new_seq_id);
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        if (!has_l2(child, i)) {
            free_sequence(engine, new_seq_id);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            const int b = parent->block_table[i][j];
            if (b == -1)
                continue;
            child->block_table[i][j] = b;
            engine->ref_count[b]++;
        }
    }
    child->kv_count = parent->kv_count;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = seq_by_id(engine, seq_id);
    if (seq == NULL)
        return -1;
    const int logical_idx = seq->kv_count / KV_PER_BLOCK;
    const int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    const int i = logical_idx / L2_PT_SIZE;
    const int j = logical_idx % L2_PT_SIZE;
    const int old = seq->block_table[i] ? seq->block_table[i][j] : -1;
    char *const pool = engine->pool_base_ptr;

    if (old == -1) {
        if (engine->free_local_blocks == 0 || !has_l2(seq, i))
            return -1;
        seq->block_table[i][j] = new_block(engine);
    } else if (engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        const int fresh = new_block(engine);
        memcpy(pool + (size_t)fresh * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[old]--;
        seq->block_table[i][j] = fresh;
    }
    int *const records = (int *)(pool + (size_t)seq->block_table[i][j] * BLOCK_SIZE);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.prev != &engine->active_seqs)
        free_sequence(engine, GET_SEQ(engine->active_seqs.prev)->seq_id);
    free(engine->ref_count);
    free(engine);
    return 0;
}

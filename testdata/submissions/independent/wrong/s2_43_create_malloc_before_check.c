/* MISTAKE: the sequence is allocated before the capacity check and leaks when refused, task 2, shows with a refused create (too long or too few blocks) */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stddef.h>

static Sequence *node_owner(struct list_node *node)
{
    return (Sequence *)(((char *)node) - offsetof(Sequence, node));
}

static Sequence *locate(LLMEngine *engine, int seq_id)
{
    struct list_node *node = engine->active_seqs.next;
    Sequence *seq = NULL;
    while (node != &engine->active_seqs && seq == NULL) {
        if (node_owner(node)->seq_id == seq_id)
            seq = node_owner(node);
        node = node->next;
    }
    return seq;
}

/*
 * Gives logical block `logical` of seq a new physical block.
 * Returns the block, or -1 without any change if the table cannot be had.
 */
static int map_next(LLMEngine *engine, Sequence *seq, int logical)
{
    int i = logical / L2_PT_SIZE, j = logical % L2_PT_SIZE;
    int *table = seq->block_table[i];
    if (table == NULL) {
        table = malloc(L2_PT_SIZE * sizeof(int));
        if (table == NULL)
            return -1;
        for (int k = 0; k < L2_PT_SIZE; k++)
            table[k] = -1;
    }
    for (int block = 0; block < engine->total_local_blocks; block++) {
        if (engine->ref_count[block] == 0) {
            engine->ref_count[block] = 1;
            engine->free_local_blocks--;
            table[j] = block;
            seq->block_table[i] = table;
            return block;
        }
    }
    if (seq->block_table[i] == NULL)
        free(table);
    return -1;
}

static void release(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = seq->block_table[i][j];
            if (block == -1)
                continue;
            if (engine->ref_count[block] == 1)
                engine->free_local_blocks++;
            engine->ref_count[block]--;
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static Sequence *allocate(int seq_id, int kv_count)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (seq == NULL)
        return NULL;
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    return seq;
}

static void append_to(struct list_node *head, struct list_node *node)
{
    node->prev = head->prev;
    node->next = head;
    node->prev->next = node;
    node->next->prev = node;
}

static bool engine_setup(LLMEngine *engine, void *pool, size_t blocks)
{
    engine->ref_count = calloc(blocks, sizeof(int));
    engine->pool_base_ptr = pool;
    engine->total_local_blocks = (int)blocks;
    engine->free_local_blocks = (int)blocks;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine->ref_count != NULL;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine != NULL && !engine_setup(engine, pool_addr, pool_size / BLOCK_SIZE)) {
        free(engine);
        engine = NULL;
    }
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    else if (initial_kv_len <= 0)
        return NULL;
    else if (locate(engine, seq_id) != NULL)
        return NULL;
    Sequence *seq = allocate(seq_id, initial_kv_len);
    long required = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > 256)
        return NULL;
    else if (required > engine->free_local_blocks)
        return NULL;

    if (seq == NULL)
        return NULL;
    for (int logical = 0; logical < required; logical++) {
        if (map_next(engine, seq, logical) == -1) {
            release(engine, seq);
            return NULL;
        }
    }
    append_to(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = locate(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    release(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = locate(engine, parent_seq_id);
    if (parent == NULL)
        return NULL;
    else if (locate(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = allocate(new_seq_id, parent->kv_count);
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *from = parent->block_table[i];
        if (from == NULL)
            continue;
        int *to = malloc(L2_PT_SIZE * sizeof(int));
        if (to == NULL) {
            release(engine, child);
            return NULL;
        }
        memset(to, -1, L2_PT_SIZE * sizeof(int));
        memcpy(to, from, L2_PT_SIZE * sizeof(int));
        child->block_table[i] = to;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (to[j] != -1)
                engine->ref_count[to[j]]++;
    }
    append_to(&engine->active_seqs, &child->node);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = locate(engine, seq_id);
    if (seq == NULL)
        return -1;
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int *table = seq->block_table[logical_idx / L2_PT_SIZE];
    int old = table == NULL ? -1 : table[logical_idx % L2_PT_SIZE];
    int block;
    char *pool = engine->pool_base_ptr;

    if (old != -1 && engine->ref_count[old] == 1) {
        block = old;
    } else if (engine->free_local_blocks == 0) {
        return -1;
    } else {
        block = map_next(engine, seq, logical_idx);
        if (block == -1)
            return -1;
        if (old != -1) {
            memcpy(pool + (size_t)block * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    ((int *)(pool + (size_t)block * BLOCK_SIZE))[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *node = engine->active_seqs.next, *next;
    for (; node != &engine->active_seqs; node = next) {
        next = node->next;
        release(engine, node_owner(node));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

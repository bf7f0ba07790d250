/* MISTAKE: the child starts with kv_count 0, task 3, shows with any fork */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng;

    if (!pool_addr)
        return NULL;
    if (pool_size < BLOCK_SIZE)
        return NULL;

    if ((eng = malloc(sizeof *eng)) == NULL)
        return NULL;
    eng->total_local_blocks = pool_size / BLOCK_SIZE;
    eng->free_local_blocks = eng->total_local_blocks;
    eng->pool_base_ptr = pool_addr;
    if ((eng->ref_count = calloc(eng->total_local_blocks, sizeof *eng->ref_count)) == NULL)
        goto bad;
    eng->active_seqs.next = eng->active_seqs.prev = &eng->active_seqs;
    return eng;
bad:
    free(eng);
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    struct list_node *pos;
    Sequence *seq = NULL;
    int n, i, j, k;

    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        seq = (Sequence *)((char *)pos - offsetof(Sequence, node));
        if (seq->seq_id == seq_id)
            return NULL;
    }
    /* ceil without the sum, the sum could overflow */
    n = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK != 0);
    if (n > 256 || n > engine->free_local_blocks)
        return NULL;

    seq = malloc(sizeof *seq);
    if (seq == NULL)
        goto fail_seq;
    seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
    if (seq->block_table == NULL)
        goto fail_l1;

    /* all tables first, so nothing in the engine has to be undone */
    for (i = 0; i * L2_PT_SIZE < n; i++) {
        seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        if (seq->block_table[i] == NULL)
            goto fail_l2;
        for (j = 0; j < L2_PT_SIZE; j++)
            seq->block_table[i][j] = -1;
    }

    k = 0;
    for (i = 0; i < engine->total_local_blocks && k < n; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            seq->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = i;
            k++;
        }
    }

    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    seq->node.next = &engine->active_seqs;
    seq->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;

fail_l2:
    for (i = 0; i < L1_PT_SIZE; i++)
        free(seq->block_table[i]);
    free(seq->block_table);
fail_l1:
    free(seq);
fail_seq:
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    struct list_node *pos;
    Sequence *seq;
    int i, j, b;

    if (engine == NULL)
        return -1;
    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        seq = (Sequence *)((char *)pos - offsetof(Sequence, node));
        if (seq->seq_id == seq_id)
            goto found;
    }
    return -1;
found:
    pos->prev->next = pos->next;
    pos->next->prev = pos->prev;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] != NULL) {
            for (j = 0; j < L2_PT_SIZE; j++) {
                b = seq->block_table[i][j];
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

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    struct list_node *pos;
    Sequence *seq, *parent = NULL, *child;
    int i, j;

    if (engine == NULL)
        return NULL;
    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        seq = (Sequence *)((char *)pos - offsetof(Sequence, node));
        if (seq->seq_id == new_seq_id)
            return NULL;
        if (seq->seq_id == parent_seq_id)
            parent = seq;
    }
    if (parent == NULL)
        return NULL;

    child = malloc(sizeof *child);
    if (child == NULL)
        return NULL;
    child->block_table = calloc(L1_PT_SIZE, sizeof *child->block_table);
    if (child->block_table == NULL)
        goto fail_child;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        if (child->block_table[i] == NULL)
            goto fail_tables;
        memcpy(child->block_table[i], parent->block_table[i], L2_PT_SIZE * sizeof(int));
    }
    /* cannot fail from here on */
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (child->block_table[i] == NULL)
            continue;
        for (j = 0; j < L2_PT_SIZE; j++)
            if (child->block_table[i][j] != -1)
                engine->ref_count[child->block_table[i][j]]++;
    }
    child->seq_id = new_seq_id;
    child->kv_count = 0;
    child->node.next = &engine->active_seqs;
    child->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &child->node;
    engine->active_seqs.prev = &child->node;
    return child;

fail_tables:
    for (i = 0; i < L1_PT_SIZE; i++)
        free(child->block_table[i]);
    free(child->block_table);
fail_child:
    free(child);
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    struct list_node *pos;
    Sequence *seq;
    int logical_idx, offset, l1, l2, old, b, j;
    int *table;
    char *pool;

    if (engine == NULL)
        return -1;
    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        seq = (Sequence *)((char *)pos - offsetof(Sequence, node));
        if (seq->seq_id == seq_id)
            goto found;
    }
    return -1;
found:
    logical_idx = seq->kv_count / KV_PER_BLOCK;
    offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    l1 = logical_idx / L2_PT_SIZE;
    l2 = logical_idx % L2_PT_SIZE;
    pool = engine->pool_base_ptr;
    table = seq->block_table[l1];
    old = table ? table[l2] : -1;
    if (old != -1 && engine->ref_count[old] == 1) {
        b = old;
        goto store;
    }
    if (engine->free_local_blocks == 0)
        return -1;
    for (b = 0; b < engine->total_local_blocks; b++)
        if (engine->ref_count[b] == 0)
            break;
    if (b == engine->total_local_blocks)
        return -1;
    if (table == NULL) {
        table = malloc(L2_PT_SIZE * sizeof *table);
        if (table == NULL)
            return -1;
        for (j = 0; j < L2_PT_SIZE; j++)
            table[j] = -1;
        seq->block_table[l1] = table;
    }
    if (old != -1) {
        memcpy(pool + (size_t)b * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[old]--;
    }
    table[l2] = b;
    engine->ref_count[b] = 1;
    engine->free_local_blocks--;
store:
    ((int *)(pool + (size_t)b * BLOCK_SIZE))[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    struct list_node *pos, *nxt;
    Sequence *seq;
    int i;

    if (engine == NULL)
        return -1;
    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = nxt) {
        nxt = pos->next;
        seq = (Sequence *)((char *)pos - offsetof(Sequence, node));
        for (i = 0; i < L1_PT_SIZE; i++)
            free(seq->block_table[i]);
        free(seq->block_table);
        free(seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

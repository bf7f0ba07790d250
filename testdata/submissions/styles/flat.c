/* NOT TO BE HANDED IN: a correct submission of this project's own. Style: six long functions, no helpers. */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (!e)
        return NULL;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = pool_size / BLOCK_SIZE;
    e->free_local_blocks = e->total_local_blocks;
    e->ref_count = (int *)calloc(e->total_local_blocks, sizeof(int));
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = container_of(p, Sequence, node);
        if (s->seq_id == seq_id)
            return NULL;
    }
    long need = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > 256 || need > engine->free_local_blocks)
        return NULL;
    Sequence *seq = (Sequence *)malloc(sizeof(Sequence));
    if (!seq)
        return NULL;
    seq->block_table = (int **)malloc(L1_PT_SIZE * sizeof(int *));
    if (!seq->block_table) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    for (long b = 0; b < need; b++) {
        int i = b / L2_PT_SIZE, j = b % L2_PT_SIZE;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = (int *)malloc(L2_PT_SIZE * sizeof(int));
            for (int k = 0; k < L2_PT_SIZE; k++)
                seq->block_table[i][k] = -1;
        }
        for (int id = 0; id < engine->total_local_blocks; id++) {
            if (engine->ref_count[id] == 0) {
                seq->block_table[i][j] = id;
                engine->ref_count[id] = 1;
                engine->free_local_blocks--;
                break;
            }
        }
    }
    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    seq->node.next = &engine->active_seqs;
    seq->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = NULL;
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = container_of(p, Sequence, node);
        if (s->seq_id == seq_id) {
            seq = s;
            break;
        }
    }
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (seq->block_table[i][j] != -1) {
                engine->ref_count[seq->block_table[i][j]]--;
                if (engine->ref_count[seq->block_table[i][j]] == 0)
                    engine->free_local_blocks++;
            }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = NULL;
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = container_of(p, Sequence, node);
        if (s->seq_id == new_seq_id)
            return NULL;
        if (s->seq_id == parent_seq_id)
            parent = s;
    }
    if (parent == NULL)
        return NULL;
    Sequence *child = (Sequence *)malloc(sizeof(Sequence));
    if (!child)
        return NULL;
    child->block_table = (int **)malloc(L1_PT_SIZE * sizeof(int *));
    if (!child->block_table) {
        free(child);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        child->block_table[i] = NULL;
        if (parent->block_table[i] != NULL) {
            child->block_table[i] = (int *)malloc(L2_PT_SIZE * sizeof(int));
            for (int j = 0; j < L2_PT_SIZE; j++) {
                child->block_table[i][j] = -1;
                if (parent->block_table[i][j] != -1) {
                    child->block_table[i][j] = parent->block_table[i][j];
                    engine->ref_count[parent->block_table[i][j]]++;
                }
            }
        }
    }
    child->kv_count = parent->kv_count;
    child->seq_id = new_seq_id;
    child->node.next = &engine->active_seqs;
    child->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &child->node;
    engine->active_seqs.prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = NULL;
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = container_of(p, Sequence, node);
        if (s->seq_id == seq_id) {
            seq = s;
            break;
        }
    }
    if (seq == NULL)
        return -1;
    int logical = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= 256)
        return -1;
    int i = logical / L2_PT_SIZE;
    int j = logical % L2_PT_SIZE;
    int old = -1;
    if (seq->block_table[i] != NULL)
        old = seq->block_table[i][j];
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = (int *)malloc(L2_PT_SIZE * sizeof(int));
            for (int k = 0; k < L2_PT_SIZE; k++)
                seq->block_table[i][k] = -1;
        }
        int id;
        for (id = 0; id < engine->total_local_blocks; id++)
            if (engine->ref_count[id] == 0)
                break;
        if (old != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        engine->ref_count[id] = 1;
        engine->free_local_blocks--;
        seq->block_table[i][j] = id;
    }
    int *slot = (int *)((char *)engine->pool_base_ptr + (size_t)seq->block_table[i][j] * BLOCK_SIZE);
    slot[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *next = p->next;
        Sequence *seq = container_of(p, Sequence, node);
        for (int i = 0; i < L1_PT_SIZE; i++)
            if (seq->block_table[i] != NULL)
                free(seq->block_table[i]);
        free(seq->block_table);
        free(seq);
        p = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* MISTAKE: llm_init tests pool_size <= BLOCK_SIZE, task 1, shows with a pool of exactly 64 bytes */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

static Sequence *seqOf(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *findSeq(LLMEngine *engine, int seq_id)
{
    struct list_node *cur;
    for (cur = engine->active_seqs.next; cur != &engine->active_seqs; cur = cur->next) {
        Sequence *s = seqOf(cur);
        if (s->seq_id == seq_id)
            return s;
    }
    return NULL;
}

static int firstFit(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0)
            return i;
    return -1;
}

static void addTail(LLMEngine *engine, Sequence *seq)
{
    struct list_node *head = &engine->active_seqs;
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
}

static int *newL2(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof(int));
    if (t != NULL)
        for (int i = 0; i < L2_PT_SIZE; i++)
            t[i] = -1;
    return t;
}

/* gives back everything the sequence holds; also used when a creation fails half way */
static void dropSeq(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = seq->block_table[i];
        if (l2 == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (l2[j] != -1) {
                engine->ref_count[l2[j]]--;
                if (engine->ref_count[l2[j]] == 0)
                    engine->free_local_blocks++;
            }
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
}

static Sequence *newSeq(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    return seq;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size <= BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (findSeq(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;

    Sequence *seq = newSeq(seq_id);
    if (seq == NULL)
        return NULL;
    for (int b = 0; b < need; b++) {
        int l1 = b / L2_PT_SIZE;
        int l2 = b % L2_PT_SIZE;
        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = newL2();
            if (seq->block_table[l1] == NULL) {
                dropSeq(engine, seq);
                return NULL;
            }
        }
        int phys = firstFit(engine);
        if (phys < 0) {
            dropSeq(engine, seq);
            return NULL;
        }
        seq->block_table[l1][l2] = phys;
        engine->ref_count[phys] = 1;
        engine->free_local_blocks--;
    }
    seq->kv_count = initial_kv_len;
    addTail(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = findSeq(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    dropSeq(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = findSeq(engine, parent_seq_id);
    if (parent == NULL || findSeq(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = newSeq(new_seq_id);
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = newL2();
        if (child->block_table[i] == NULL) {
            dropSeq(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int phys = parent->block_table[i][j];
            if (phys == -1)
                continue;
            child->block_table[i][j] = phys;
            engine->ref_count[phys]++;
        }
    }
    child->kv_count = parent->kv_count;
    addTail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = findSeq(engine, seq_id);
    if (seq == NULL)
        return -1;
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int i = logical_idx / L2_PT_SIZE, j = logical_idx % L2_PT_SIZE;
    int phys = seq->block_table[i] == NULL ? -1 : seq->block_table[i][j];
    int needBlock = phys == -1 || engine->ref_count[phys] > 1;
    if (needBlock) {
        if (engine->free_local_blocks == 0)
            return -1;
        int fresh = firstFit(engine);
        if (fresh < 0)
            return -1;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = newL2();
            if (seq->block_table[i] == NULL)
                return -1;
        }
        if (phys != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)fresh * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)phys * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[phys]--;
        }
        engine->ref_count[fresh] = 1;
        engine->free_local_blocks--;
        seq->block_table[i][j] = fresh;
        phys = fresh;
    }
    int *slot = (int *)((char *)engine->pool_base_ptr + (size_t)phys * BLOCK_SIZE);
    slot[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        struct list_node *next = cur->next;
        dropSeq(engine, seqOf(cur));
        cur = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

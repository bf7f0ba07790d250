/* MISTAKE: append refuses the last logical block, task 4, shows with records 4,081 to 4,096 */
#include "llm_memory.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void *null_errno(int e)
{
    errno = e;
    return NULL;
}

static int fail_errno(int e)
{
    errno = e;
    return -1;
}

static Sequence *enclosing(struct list_node *node)
{
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find_sequence(LLMEngine *engine, int seq_id)
{
    struct list_node *node = engine->active_seqs.next;

    while (node != &engine->active_seqs) {
        if (enclosing(node)->seq_id == seq_id)
            return enclosing(node);
        node = node->next;
    }
    return null_errno(ENOENT);
}

static int get_free_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0)
            return i;
    return fail_errno(ENOSPC);
}

static int l2_ensure(int **slot)
{
    if (*slot != NULL)
        return 0;
    int *table = malloc(L2_PT_SIZE * sizeof *table);
    if (table == NULL)
        return fail_errno(ENOMEM);
    for (int i = 0; i < L2_PT_SIZE; i++)
        table[i] = -1;
    *slot = table;
    return 0;
}

static int l2_map(LLMEngine *engine, Sequence *seq, int logical)
{
    int **slot = &seq->block_table[logical / L2_PT_SIZE];
    int block;

    if (l2_ensure(slot) == -1 || (block = get_free_block(engine)) == -1)
        return -1;
    (*slot)[logical % L2_PT_SIZE] = block;
    engine->ref_count[block] = 1;
    engine->free_local_blocks--;
    return block;
}

static int sequence_open(Sequence **out, int seq_id, int kv_count)
{
    Sequence *seq = malloc(sizeof *seq);

    if (seq == NULL)
        return fail_errno(ENOMEM);
    seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);
    if (seq->block_table == NULL) {
        free(seq);
        return fail_errno(ENOMEM);
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    *out = seq;
    return 0;
}

static void sequence_close(LLMEngine *engine, Sequence *seq)
{
    int saved = errno;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = seq->block_table[i][j];
            if (block == -1)
                continue;
            engine->ref_count[block]--;
            if (engine->ref_count[block] == 0)
                engine->free_local_blocks++;
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
    errno = saved;
}

static Sequence *publish(LLMEngine *engine, Sequence *seq)
{
    struct list_node *tail = engine->active_seqs.prev;

    seq->node.prev = tail;
    seq->node.next = &engine->active_seqs;
    tail->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return null_errno(EINVAL);
    LLMEngine *engine = malloc(sizeof *engine);
    if (engine == NULL)
        return null_errno(ENOMEM);
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return null_errno(ENOMEM);
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
        return null_errno(EINVAL);
    if (initial_kv_len <= 0)
        return null_errno(EINVAL);
    if (find_sequence(engine, seq_id) != NULL)
        return null_errno(EEXIST);
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return null_errno(EFBIG);
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > engine->free_local_blocks)
        return null_errno(ENOSPC);

    Sequence *seq;
    if (sequence_open(&seq, seq_id, initial_kv_len) == -1)
        return NULL;
    for (int logical = 0; logical < required; logical++) {
        if (l2_map(engine, seq, logical) == -1) {
            sequence_close(engine, seq);
            return NULL;
        }
    }
    return publish(engine, seq);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return fail_errno(EINVAL);
    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    sequence_close(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return null_errno(EINVAL);
    Sequence *parent = find_sequence(engine, parent_seq_id), *child;
    if (parent == NULL)
        return NULL;
    if (find_sequence(engine, new_seq_id) != NULL)
        return null_errno(EEXIST);
    if (sequence_open(&child, new_seq_id, parent->kv_count) == -1)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        if (l2_ensure(&child->block_table[i]) == -1) {
            sequence_close(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = parent->block_table[i][j];
            if (block == -1)
                continue;
            child->block_table[i][j] = block;
            engine->ref_count[block]++;
        }
    }
    return publish(engine, child);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return fail_errno(EINVAL);
    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL)
        return -1;
    int logical = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= L1_PT_SIZE * L2_PT_SIZE - 1)
        return fail_errno(EFBIG);
    const int *table = seq->block_table[logical / L2_PT_SIZE];
    int old = table != NULL ? table[logical % L2_PT_SIZE] : -1;
    int block = old;
    char *pool = engine->pool_base_ptr;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return fail_errno(ENOSPC);
        block = l2_map(engine, seq, logical);
        if (block == -1)
            return -1;
        if (old != -1) {
            memcpy(pool + (size_t)block * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    int *records = (int *)(pool + (size_t)block * BLOCK_SIZE);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return fail_errno(EINVAL);
    struct list_node *node = engine->active_seqs.next;
    while (node != &engine->active_seqs) {
        struct list_node *next = node->next;
        sequence_close(engine, enclosing(node));
        node = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

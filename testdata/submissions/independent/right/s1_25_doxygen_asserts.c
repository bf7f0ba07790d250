/* STYLE: Doxygen comments, asserted internal invariants, snake_case modules (bm_, st_, sq_) */
#include "llm_memory.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/** \defgroup bm block manager */

/** \brief Address of a physical block. */
static void *bm_address(LLMEngine *engine, int block)
{
    assert(block >= 0 && block < engine->total_local_blocks);
    return (unsigned char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
}

/** \brief First-fit search; the caller has made sure there is a free block. */
static int bm_allocate(LLMEngine *engine)
{
    int found = -1;
    assert(engine->free_local_blocks > 0);
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            found = i;
            break;
        }
    }
    assert(found != -1);
    engine->ref_count[found] = 1;
    engine->free_local_blocks--;
    return found;
}

/** \brief Drops one reference. */
static void bm_drop(LLMEngine *engine, int block)
{
    assert(engine->ref_count[block] > 0);
    if (--engine->ref_count[block] == 0)
        engine->free_local_blocks++;
}

/** \brief Adds one reference to a block that is in use. */
static void bm_share(LLMEngine *engine, int block)
{
    assert(engine->ref_count[block] > 0);
    engine->ref_count[block]++;
}

/** \defgroup sq sequences */

/** \brief Recovers the sequence around a node. */
static Sequence *sq_of(struct list_node *node)
{
    return (Sequence *)((unsigned char *)node - offsetof(Sequence, node));
}

/** \brief Finds a sequence, or NULL. */
static Sequence *sq_find(LLMEngine *engine, int id)
{
    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next) {
        assert(n->next->prev == n);
        if (sq_of(n)->seq_id == id)
            return sq_of(n);
    }
    return NULL;
}

/** \brief Allocates an unmapped second-level table. */
static int *sq_table(void)
{
    int *table = malloc(L2_PT_SIZE * sizeof *table);
    if (table == NULL)
        return NULL;
    memset(table, -1, L2_PT_SIZE * sizeof *table);
    return table;
}

/** \brief Allocates a sequence whose root holds only NULLs. */
static Sequence *sq_allocate(void)
{
    Sequence *seq = malloc(sizeof *seq);
    int **root = malloc(L1_PT_SIZE * sizeof *root);
    if (seq == NULL || root == NULL) {
        free(root);
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        root[i] = NULL;
    seq->block_table = root;
    return seq;
}

/** \brief Frees the memory of an unlinked sequence and drops its references. */
static void sq_release(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *table = seq->block_table[i];
        if (table == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (table[j] != -1)
                bm_drop(engine, table[j]);
        free(table);
    }
    free(seq->block_table);
    free(seq);
}

/** \brief Links a finished sequence as the last one. */
static void sq_link(LLMEngine *engine, Sequence *seq, int id, int count)
{
    struct list_node *head = &engine->active_seqs;
    assert(head->prev->next == head);
    seq->seq_id = id;
    seq->kv_count = count;
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
}

/** \brief Task 1. */
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof *engine->ref_count);
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

/** \brief Task 2, creation. */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (sq_find(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > KV_PER_BLOCK * L1_PT_SIZE * L2_PT_SIZE)
        return NULL;
    const int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > engine->free_local_blocks)
        return NULL;

    Sequence *seq = sq_allocate();
    if (seq == NULL)
        return NULL;
    for (int k = 0; k < required; k++) {
        int *table = seq->block_table[k / L2_PT_SIZE];
        if (table == NULL) {
            table = seq->block_table[k / L2_PT_SIZE] = sq_table();
            if (table == NULL) {
                sq_release(engine, seq);
                return NULL;
            }
        }
        table[k % L2_PT_SIZE] = bm_allocate(engine);
    }
    sq_link(engine, seq, seq_id, initial_kv_len);
    return seq;
}

/** \brief Task 2, deletion. */
int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = sq_find(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    sq_release(engine, seq);
    return 0;
}

/** \brief Task 3. */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = sq_find(engine, parent_seq_id);
    if (parent == NULL)
        return NULL;
    if (sq_find(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = sq_allocate();
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        int *table = child->block_table[i] = sq_table();
        if (table == NULL) {
            sq_release(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            table[j] = parent->block_table[i][j];
            if (table[j] != -1)
                bm_share(engine, table[j]);
        }
    }
    sq_link(engine, child, new_seq_id, parent->kv_count);
    return child;
}

/** \brief Task 4. */
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = sq_find(engine, seq_id);
    if (seq == NULL)
        return -1;
    const int logical_idx = seq->kv_count / KV_PER_BLOCK;
    const int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int **const table = &seq->block_table[logical_idx / L2_PT_SIZE];
    const int j = logical_idx % L2_PT_SIZE;
    const int old = *table == NULL ? -1 : (*table)[j];
    int block = old;

    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (*table == NULL) {
            *table = sq_table();
            if (*table == NULL)
                return -1;
        }
        block = bm_allocate(engine);
        if (old != -1) {
            memcpy(bm_address(engine, block), bm_address(engine, old), BLOCK_SIZE);
            bm_drop(engine, old);
        }
        (*table)[j] = block;
    }
    int *records = bm_address(engine, block);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

/** \brief Task 5. */
int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *next = n->next;
        sq_release(engine, sq_of(n));
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

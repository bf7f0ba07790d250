/* MISTAKE: llm_destroy is missing, task 5, shows at link time */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define L1_BYTES (L1_PT_SIZE * sizeof(int *))
#define L2_BYTES (L2_PT_SIZE * sizeof(int))
#define NODE_OFFSET offsetof(Sequence, node)
#define UNMAPPED (-1)
#define SUCCESS 0
#define FAILURE (-1)

/*==========================================================================
 *                              LIST HANDLING
 *==========================================================================*/
static Sequence *get_container(struct list_node *node)
{
    if (node == NULL)
        return NULL;
    return (Sequence *)((char *)node - NODE_OFFSET);
}

static void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static void list_append(struct list_node *head, struct list_node *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static void list_unlink(struct list_node *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

static Sequence *list_search(LLMEngine *engine, int seq_id)
{
    struct list_node *head = &engine->active_seqs;
    for (struct list_node *it = head->next; it != NULL && it != head; it = it->next) {
        Sequence *seq = get_container(it);
        if (seq != NULL && seq->seq_id == seq_id)
            return seq;
    }
    return NULL;
}

/*==========================================================================
 *                             BLOCK HANDLING
 *==========================================================================*/
static int block_alloc(LLMEngine *engine)
{
    for (int id = 0; id < engine->total_local_blocks; id++) {
        if (engine->ref_count[id] == 0) {
            engine->ref_count[id] = 1;
            engine->free_local_blocks--;
            return id;
        }
    }
    return UNMAPPED;
}

static void block_put(LLMEngine *engine, int id)
{
    if (id == UNMAPPED)
        return;
    engine->ref_count[id]--;
    if (engine->ref_count[id] == 0)
        engine->free_local_blocks++;
}

static void block_get(LLMEngine *engine, int id)
{
    if (id != UNMAPPED)
        engine->ref_count[id]++;
}

static char *block_addr(LLMEngine *engine, int id)
{
    return (char *)engine->pool_base_ptr + (size_t)id * (size_t)BLOCK_SIZE;
}

/*==========================================================================
 *                             TABLE HANDLING
 *==========================================================================*/
static int *l2_create(void)
{
    int *l2 = calloc(1, L2_BYTES);
    if (l2 == NULL)
        return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++)
        l2[i] = UNMAPPED;
    return l2;
}

static void seq_destroy(LLMEngine *engine, Sequence *seq)
{
    if (seq == NULL)
        return;
    if (seq->block_table != NULL) {
        for (int i = 0; i < L1_PT_SIZE; i++) {
            int *l2 = seq->block_table[i];
            if (l2 == NULL)
                continue;
            for (int j = 0; j < L2_PT_SIZE; j++)
                block_put(engine, l2[j]);
            free(l2);
            seq->block_table[i] = NULL;
        }
        free(seq->block_table);
        seq->block_table = NULL;
    }
    free(seq);
}

static Sequence *seq_create(int seq_id, int kv_count)
{
    Sequence *seq = calloc(1, sizeof(Sequence));
    if (seq == NULL)
        return NULL;
    seq->block_table = calloc(1, L1_BYTES);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    list_init(&seq->node);
    return seq;
}

/*==========================================================================
 *                          TASK 1: INITIALIZATION
 *==========================================================================*/
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    LLMEngine *engine = calloc(1, sizeof(LLMEngine));
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
    list_init(&engine->active_seqs);
    return engine;
}

/*==========================================================================
 *                      TASK 2: CREATION AND DELETION
 *==========================================================================*/
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (list_search(engine, seq_id) != NULL)
        return NULL;

    /* capacity pre-check */
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > engine->free_local_blocks)
        return NULL;

    Sequence *seq = seq_create(seq_id, initial_kv_len);
    if (seq == NULL)
        return NULL;

    for (int n = 0; n < required; n++) {
        int i = n / L2_PT_SIZE;
        int j = n % L2_PT_SIZE;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = l2_create();
            if (seq->block_table[i] == NULL) {
                seq_destroy(engine, seq);
                return NULL;
            }
        }
        seq->block_table[i][j] = block_alloc(engine);
        if (seq->block_table[i][j] == UNMAPPED) {
            seq_destroy(engine, seq);
            return NULL;
        }
    }
    list_append(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return FAILURE;
    Sequence *seq = list_search(engine, seq_id);
    if (seq == NULL)
        return FAILURE;
    list_unlink(&seq->node);
    seq_destroy(engine, seq);
    return SUCCESS;
}

/*==========================================================================
 *                             TASK 3: FORKING
 *==========================================================================*/
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = list_search(engine, parent_seq_id);
    if (parent == NULL)
        return NULL;
    if (list_search(engine, new_seq_id) != NULL)
        return NULL;

    Sequence *child = seq_create(new_seq_id, parent->kv_count);
    if (child == NULL)
        return NULL;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = l2_create();
        if (child->block_table[i] == NULL) {
            seq_destroy(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            child->block_table[i][j] = parent->block_table[i][j];
            block_get(engine, child->block_table[i][j]);
        }
    }
    list_append(&engine->active_seqs, &child->node);
    return child;
}

/*==========================================================================
 *                            TASK 4: APPENDING
 *==========================================================================*/
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return FAILURE;
    Sequence *seq = list_search(engine, seq_id);
    if (seq == NULL)
        return FAILURE;

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE)
        return FAILURE;
    int i = logical_idx / L2_PT_SIZE;
    int j = logical_idx % L2_PT_SIZE;

    int old = UNMAPPED;
    if (seq->block_table[i] != NULL)
        old = seq->block_table[i][j];

    if (old == UNMAPPED || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return FAILURE;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = l2_create();
            if (seq->block_table[i] == NULL)
                return FAILURE;
        }
        int id = block_alloc(engine);
        if (id == UNMAPPED)
            return FAILURE;
        if (old != UNMAPPED)
            memcpy(block_addr(engine, id), block_addr(engine, old), BLOCK_SIZE);
        block_put(engine, old);
        seq->block_table[i][j] = id;
    }

    int *kv = (int *)block_addr(engine, seq->block_table[i][j]);
    kv[offset] = kv_data;
    seq->kv_count++;
    return SUCCESS;
}

/*==========================================================================
 *                           TASK 5: DESTRUCTION
 *==========================================================================*/

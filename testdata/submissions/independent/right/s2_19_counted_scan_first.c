/* STYLE: counts with a scan of ref_count as a cross-check beside free_local_blocks, stats helpers, long names */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

static int count_really_free(const LLMEngine *engine, int stop_at)
{
    int counter = 0;
    for (int block_index = 0; block_index < engine->total_local_blocks && counter < stop_at; block_index++)
        if (engine->ref_count[block_index] == 0)
            counter++;
    return counter;
}

/* both the counter and the array must have room */
static int enough_blocks(const LLMEngine *engine, int required_blocks)
{
    if (required_blocks > engine->free_local_blocks)
        return 0;
    return count_really_free(engine, required_blocks) >= required_blocks;
}

static Sequence *sequence_from_list_node(struct list_node *list_node_pointer)
{
    return (Sequence *)((char *)list_node_pointer - offsetof(Sequence, node));
}

static Sequence *get_sequence_by_id(LLMEngine *engine, int sequence_id)
{
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = sequence_from_list_node(current_node);
        if (current_sequence->seq_id == sequence_id)
            return current_sequence;
        current_node = current_node->next;
    }
    return NULL;
}

static int allocate_first_fit(LLMEngine *engine)
{
    int block_index;
    for (block_index = 0; block_index < engine->total_local_blocks; block_index++) {
        if (engine->ref_count[block_index] == 0) {
            engine->ref_count[block_index]++;
            engine->free_local_blocks--;
            break;
        }
    }
    return block_index;
}

static int *allocate_second_level_table(void)
{
    int *second_level_table = (int *)malloc(L2_PT_SIZE * sizeof(int));
    if (second_level_table == NULL)
        return NULL;
    for (int entry_index = 0; entry_index < L2_PT_SIZE; entry_index++)
        second_level_table[entry_index] = -1;
    return second_level_table;
}

static int allocate_tables_up_to(Sequence *sequence, int number_of_tables)
{
    for (int table_index = 0; table_index < number_of_tables; table_index++) {
        sequence->block_table[table_index] = allocate_second_level_table();
        if (sequence->block_table[table_index] == NULL)
            return 0;
    }
    return 1;
}

static void free_sequence_memory(Sequence *sequence)
{
    for (int table_index = 0; table_index < L1_PT_SIZE; table_index++)
        if (sequence->block_table[table_index] != NULL)
            free(sequence->block_table[table_index]);
    free(sequence->block_table);
    free(sequence);
}

static Sequence *allocate_sequence(int sequence_id, int number_of_records)
{
    Sequence *sequence = (Sequence *)malloc(sizeof(Sequence));
    if (sequence == NULL)
        return NULL;
    sequence->block_table = (int **)calloc(L1_PT_SIZE, sizeof(int *));
    if (sequence->block_table == NULL) {
        free(sequence);
        return NULL;
    }
    sequence->seq_id = sequence_id;
    sequence->kv_count = number_of_records;
    return sequence;
}

static void link_at_tail(LLMEngine *engine, Sequence *sequence)
{
    struct list_node *previous_tail = engine->active_seqs.prev;
    sequence->node.prev = previous_tail;
    sequence->node.next = &engine->active_seqs;
    previous_tail->next = &sequence->node;
    engine->active_seqs.prev = &sequence->node;
}

static void unlink_from_list(Sequence *sequence)
{
    sequence->node.prev->next = sequence->node.next;
    sequence->node.next->prev = sequence->node.prev;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;
    int number_of_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = (int *)calloc((size_t)number_of_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = number_of_blocks;
    engine->free_local_blocks = number_of_blocks;
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
    if (get_sequence_by_id(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int required_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    int required_tables = (required_blocks + L2_PT_SIZE - 1) / L2_PT_SIZE;
    if (!enough_blocks(engine, required_blocks))
        return NULL;
    Sequence *sequence = allocate_sequence(seq_id, initial_kv_len);
    if (sequence == NULL)
        return NULL;
    if (!allocate_tables_up_to(sequence, required_tables)) {
        free_sequence_memory(sequence);
        return NULL;
    }
    for (int logical_index = 0; logical_index < required_blocks; logical_index++) {
        int table_index = logical_index / L2_PT_SIZE;
        int entry_index = logical_index % L2_PT_SIZE;
        sequence->block_table[table_index][entry_index] = allocate_first_fit(engine);
    }
    link_at_tail(engine, sequence);
    return sequence;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *sequence = get_sequence_by_id(engine, seq_id);
    if (sequence == NULL)
        return -1;
    unlink_from_list(sequence);
    for (int table_index = 0; table_index < L1_PT_SIZE; table_index++) {
        if (sequence->block_table[table_index] == NULL)
            continue;
        for (int entry_index = 0; entry_index < L2_PT_SIZE; entry_index++) {
            int block_index = sequence->block_table[table_index][entry_index];
            if (block_index == -1)
                continue;
            engine->ref_count[block_index]--;
            if (engine->ref_count[block_index] == 0)
                engine->free_local_blocks++;
        }
    }
    free_sequence_memory(sequence);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent_sequence = get_sequence_by_id(engine, parent_seq_id);
    if (parent_sequence == NULL)
        return NULL;
    if (get_sequence_by_id(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child_sequence = allocate_sequence(new_seq_id, parent_sequence->kv_count);
    if (child_sequence == NULL)
        return NULL;
    for (int table_index = 0; table_index < L1_PT_SIZE; table_index++) {
        if (parent_sequence->block_table[table_index] == NULL)
            continue;
        child_sequence->block_table[table_index] = allocate_second_level_table();
        if (child_sequence->block_table[table_index] == NULL) {
            free_sequence_memory(child_sequence);
            return NULL;
        }
        for (int entry_index = 0; entry_index < L2_PT_SIZE; entry_index++)
            child_sequence->block_table[table_index][entry_index] =
                parent_sequence->block_table[table_index][entry_index];
    }
    for (int table_index = 0; table_index < L1_PT_SIZE; table_index++) {
        if (child_sequence->block_table[table_index] == NULL)
            continue;
        for (int entry_index = 0; entry_index < L2_PT_SIZE; entry_index++)
            if (child_sequence->block_table[table_index][entry_index] != -1)
                engine->ref_count[child_sequence->block_table[table_index][entry_index]]++;
    }
    link_at_tail(engine, child_sequence);
    return child_sequence;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *sequence = get_sequence_by_id(engine, seq_id);
    if (sequence == NULL)
        return -1;
    int logical_index = sequence->kv_count / KV_PER_BLOCK;
    int offset_in_block = sequence->kv_count % KV_PER_BLOCK;
    if (logical_index >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int table_index = logical_index / L2_PT_SIZE;
    int entry_index = logical_index % L2_PT_SIZE;
    int table_exists = sequence->block_table[table_index] != NULL;
    int current_block = table_exists ? sequence->block_table[table_index][entry_index] : -1;
    int copy_needed = current_block != -1 && engine->ref_count[current_block] > 1;
    int block_needed = current_block == -1 || copy_needed;
    char *pool_start = (char *)engine->pool_base_ptr;

    if (block_needed && !enough_blocks(engine, 1))
        return -1;
    if (!table_exists) {
        sequence->block_table[table_index] = allocate_second_level_table();
        if (sequence->block_table[table_index] == NULL)
            return -1;
    }
    if (block_needed) {
        int previous_block = current_block;
        current_block = allocate_first_fit(engine);
        sequence->block_table[table_index][entry_index] = current_block;
        if (copy_needed) {
            memcpy(pool_start + (size_t)current_block * BLOCK_SIZE,
                   pool_start + (size_t)previous_block * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[previous_block]--;
        }
    }
    int *block_start = (int *)(pool_start + (size_t)current_block * BLOCK_SIZE);
    block_start[offset_in_block] = kv_data;
    sequence->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *sequence = sequence_from_list_node(engine->active_seqs.next);
        unlink_from_list(sequence);
        free_sequence_memory(sequence);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

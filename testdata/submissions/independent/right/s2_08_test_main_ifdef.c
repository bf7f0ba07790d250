/* STYLE: student's own test main left in under #ifdef, print helpers, // comments, early 2000s C++ accent */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#ifdef MY_TEST
#include <stdio.h>
#endif

// ------------------------------------------------------------------ helpers

static Sequence* nodeToSequence(struct list_node* pos)
{
    char* p = (char*)pos;
    return (Sequence*)(p - offsetof(Sequence, node));
}

static Sequence* findSequence(LLMEngine* engine, int id)
{
    for (struct list_node* pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        Sequence* seq = nodeToSequence(pos);
        if (seq->seq_id == id) { return seq; }
    }
    return NULL;
}

static int findFreeBlock(LLMEngine* engine)
{
    for (int blockId = 0; blockId < engine->total_local_blocks; blockId++) {
        if (engine->ref_count[blockId] == 0) { return blockId; }
    }
    return -1; // no free block
}

static int* newL2Table(void)
{
    int* table = (int*)malloc(L2_PT_SIZE * sizeof(int));
    if (table == NULL) { return NULL; }
    for (int i = 0; i < L2_PT_SIZE; i++) { table[i] = -1; }
    return table;
}

static void deleteSequence(LLMEngine* engine, Sequence* seq)
{
    // all 16 slots, no break on NULL!
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) { continue; }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int blockId = seq->block_table[i][j];
            if (blockId == -1) { continue; }
            engine->ref_count[blockId]--;
            if (engine->ref_count[blockId] == 0) { engine->free_local_blocks++; }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static Sequence* newSequence(int id)
{
    int** l1 = (int**)malloc(L1_PT_SIZE * sizeof(int*));
    if (l1 == NULL) { return NULL; }
    Sequence* seq = (Sequence*)malloc(sizeof(Sequence));
    if (seq == NULL) { free(l1); return NULL; }
    for (int i = 0; i < L1_PT_SIZE; i++) { l1[i] = NULL; }
    seq->seq_id = id;
    seq->block_table = l1;
    seq->kv_count = 0;
    return seq;
}

static void pushBack(LLMEngine* engine, Sequence* seq)
{
    struct list_node* head = &engine->active_seqs;
    struct list_node* last = head->prev;
    last->next = &seq->node;
    seq->node.prev = last;
    seq->node.next = head;
    head->prev = &seq->node;
}

// ------------------------------------------------------------------ task 1

LLMEngine* llm_init(void* pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) { return NULL; }
    LLMEngine* engine = (LLMEngine*)malloc(sizeof(LLMEngine));
    if (engine == NULL) { return NULL; }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = (int*)calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) { free(engine); return NULL; }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

// ------------------------------------------------------------------ task 2

Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) { return NULL; }
    if (initial_kv_len <= 0) { return NULL; }
    if (findSequence(engine, seq_id) != NULL) { return NULL; }

    // careful: (INT_MAX + 15) overflows, so compare first
    if (initial_kv_len > 256 * KV_PER_BLOCK) { return NULL; }
    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > engine->free_local_blocks) { return NULL; }

    Sequence* seq = newSequence(seq_id);
    if (seq == NULL) { return NULL; }

    for (int b = 0; b < blocks; b++) {
        int i = b / L2_PT_SIZE;
        int j = b % L2_PT_SIZE;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = newL2Table();
            if (seq->block_table[i] == NULL) { deleteSequence(engine, seq); return NULL; }
        }
        int blockId = findFreeBlock(engine);
        if (blockId == -1) { deleteSequence(engine, seq); return NULL; }
        engine->ref_count[blockId] = 1;
        engine->free_local_blocks--;
        seq->block_table[i][j] = blockId;
    }

    seq->kv_count = initial_kv_len;
    pushBack(engine, seq);
    return seq;
}

int free_sequence(LLMEngine* engine, int seq_id)
{
    if (engine == NULL) { return -1; }
    Sequence* seq = findSequence(engine, seq_id);
    if (seq == NULL) { return -1; }
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    deleteSequence(engine, seq);
    return 0;
}

// ------------------------------------------------------------------ task 3

Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) { return NULL; }
    Sequence* parent = findSequence(engine, parent_seq_id);
    if (parent == NULL) { return NULL; }
    if (findSequence(engine, new_seq_id) != NULL) { return NULL; }

    Sequence* child = newSequence(new_seq_id);
    if (child == NULL) { return NULL; }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) { continue; }
        child->block_table[i] = newL2Table();
        if (child->block_table[i] == NULL) { deleteSequence(engine, child); return NULL; }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int blockId = parent->block_table[i][j];
            if (blockId == -1) { continue; }
            child->block_table[i][j] = blockId;
            engine->ref_count[blockId]++;
        }
    }
    child->kv_count = parent->kv_count;
    pushBack(engine, child);
    return child;
}

// ------------------------------------------------------------------ task 4

int append_kv(LLMEngine* engine, int seq_id, int kv_data)
{
    if (engine == NULL) { return -1; }
    Sequence* seq = findSequence(engine, seq_id);
    if (seq == NULL) { return -1; }

    int logicalIdx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logicalIdx >= 256) { return -1; }
    int i = logicalIdx / L2_PT_SIZE;
    int j = logicalIdx % L2_PT_SIZE;

    int oldBlock = -1;
    if (seq->block_table[i] != NULL) { oldBlock = seq->block_table[i][j]; }
    int needNew = (oldBlock == -1);
    int needCopy = (!needNew && engine->ref_count[oldBlock] > 1);
    if ((needNew || needCopy) && engine->free_local_blocks == 0) { return -1; }

    if (seq->block_table[i] == NULL) {
        seq->block_table[i] = newL2Table();
        if (seq->block_table[i] == NULL) { return -1; }
    }
    char* pool = (char*)engine->pool_base_ptr;
    if (needNew || needCopy) {
        int newBlock = findFreeBlock(engine);
        engine->ref_count[newBlock] = 1;
        engine->free_local_blocks--;
        seq->block_table[i][j] = newBlock;
        if (needCopy) {
            memcpy(pool + (size_t)newBlock * BLOCK_SIZE, pool + (size_t)oldBlock * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[oldBlock]--;
        }
    }
    int* data = (int*)(pool + (size_t)seq->block_table[i][j] * BLOCK_SIZE);
    data[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

// ------------------------------------------------------------------ task 5

int llm_destroy(LLMEngine* engine)
{
    if (engine == NULL) { return -1; }
    struct list_node* pos = engine->active_seqs.next;
    while (pos != &engine->active_seqs) {
        struct list_node* nextPos = pos->next;
        deleteSequence(engine, nodeToSequence(pos));
        pos = nextPos;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

#ifdef MY_TEST
int main(void)
{
    static int pool[16 * 10];
    LLMEngine* e = llm_init(pool, sizeof(pool));
    create_sequence(e, 1, 20);
    fork_sequence(e, 1, 2);
    append_kv(e, 2, 42);
    printf("free blocks: %d\n", e->free_local_blocks);
    return llm_destroy(e);
}
#endif

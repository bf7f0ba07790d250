/* MISTAKE: after copy-on-write the record is stored in the old block, task 4, shows with any copy-on-write */
#include "llm_memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static Sequence *ListNode_toSequence(struct list_node *self)
{
    return (Sequence *)((char *)self - offsetof(Sequence, node));
}

static void ListNode_insertBefore(struct list_node *self, struct list_node *other)
{
    self->next = other;
    self->prev = other->prev;
    other->prev->next = self;
    other->prev = self;
}

static void ListNode_detach(struct list_node *self)
{
    self->prev->next = self->next;
    self->next->prev = self->prev;
    self->prev = self->next = self;
}

static bool Engine_find(LLMEngine *self, int id, Sequence **result)
{
    struct list_node *node = self->active_seqs.next;
    for (; node != &self->active_seqs; node = node->next)
    {
        *result = ListNode_toSequence(node);
        if ((*result)->seq_id == id)
        {
            return true;
        }
    }
    *result = NULL;
    return false;
}

static void Engine_takeBlock(LLMEngine *self, int *result)
{
    for (int i = 0; i < self->total_local_blocks; i++)
    {
        if (self->ref_count[i] == 0)
        {
            self->ref_count[i] = 1;
            self->free_local_blocks--;
            *result = i;
            return;
        }
    }
}

static void Engine_dropBlock(LLMEngine *self, int block)
{
    if (block != -1)
    {
        self->ref_count[block]--;
        const bool unused = self->ref_count[block] == 0;
        if (unused)
        {
            self->free_local_blocks++;
        }
    }
}

static void *Engine_blockAddress(const LLMEngine *self, int block)
{
    return (char *)self->pool_base_ptr + (size_t)block * BLOCK_SIZE;
}

static bool Sequence_addTable(Sequence *self, int index)
{
    int *table = malloc(sizeof(int) * L2_PT_SIZE);
    if (table == NULL)
    {
        return false;
    }
    for (int i = 0; i < L2_PT_SIZE; i++)
    {
        table[i] = -1;
    }
    self->block_table[index] = table;
    return true;
}

static void Sequence_delete(Sequence *self, LLMEngine *engine)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        if (self->block_table[i] != NULL)
        {
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                Engine_dropBlock(engine, self->block_table[i][j]);
            }
            free(self->block_table[i]);
        }
    }
    free(self->block_table);
    free(self);
}

static bool Sequence_new(Sequence **result, int id, int count)
{
    Sequence *self = malloc(sizeof(Sequence));
    if (self == NULL)
    {
        return false;
    }
    self->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (self->block_table == NULL)
    {
        free(self);
        return false;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        self->block_table[i] = NULL;
    }
    self->seq_id = id;
    self->kv_count = count;
    *result = self;
    return true;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    const bool noPool = pool_addr == NULL;
    const bool tooSmall = pool_size < BLOCK_SIZE;
    if (noPool || tooSmall)
    {
        return NULL;
    }
    LLMEngine *self = malloc(sizeof(LLMEngine));
    if (self == NULL)
    {
        return NULL;
    }
    self->pool_base_ptr = pool_addr;
    self->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    self->free_local_blocks = self->total_local_blocks;
    self->active_seqs.prev = self->active_seqs.next = &self->active_seqs;
    self->ref_count = calloc((size_t)self->total_local_blocks, sizeof(int));
    if (self->ref_count == NULL)
    {
        free(self);
        return NULL;
    }
    return self;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }
    Sequence *seq;
    if (initial_kv_len <= 0 || Engine_find(engine, seq_id, &seq))
    {
        return NULL;
    }
    const long long required = ((long long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    const bool tooLong = required > 256;
    const bool noRoom = required > engine->free_local_blocks;
    if (tooLong || noRoom)
    {
        return NULL;
    }
    if (!Sequence_new(&seq, seq_id, initial_kv_len))
    {
        return NULL;
    }
    for (int k = 0; k < (int)required; k++)
    {
        const int i = k / L2_PT_SIZE;
        const int j = k % L2_PT_SIZE;
        if (j == 0 && !Sequence_addTable(seq, i))
        {
            Sequence_delete(seq, engine);
            return NULL;
        }
        Engine_takeBlock(engine, &seq->block_table[i][j]);
    }
    ListNode_insertBefore(&seq->node, &engine->active_seqs);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence *seq;
    if (!Engine_find(engine, seq_id, &seq))
    {
        return -1;
    }
    ListNode_detach(&seq->node);
    Sequence_delete(seq, engine);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }
    Sequence *parent, *child;
    if (!Engine_find(engine, parent_seq_id, &parent) || Engine_find(engine, new_seq_id, &child))
    {
        return NULL;
    }
    if (!Sequence_new(&child, new_seq_id, parent->kv_count))
    {
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        if (parent->block_table[i] == NULL)
        {
            continue;
        }
        if (!Sequence_addTable(child, i))
        {
            Sequence_delete(child, engine);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            const int block = parent->block_table[i][j];
            if (block != -1)
            {
                child->block_table[i][j] = block;
                engine->ref_count[block]++;
            }
        }
    }
    ListNode_insertBefore(&child->node, &engine->active_seqs);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence *seq;
    if (!Engine_find(engine, seq_id, &seq))
    {
        return -1;
    }
    const int logicalIdx = seq->kv_count / KV_PER_BLOCK;
    const int offset = seq->kv_count % KV_PER_BLOCK;
    if (logicalIdx >= 256)
    {
        return -1;
    }
    const int i = logicalIdx / L2_PT_SIZE;
    const int j = logicalIdx % L2_PT_SIZE;
    const bool tableMissing = seq->block_table[i] == NULL;
    const int oldBlock = tableMissing ? -1 : seq->block_table[i][j];
    const bool newPage = oldBlock == -1;
    const bool copyOnWrite = !newPage && engine->ref_count[oldBlock] > 1;
    const bool outOfMemory = (newPage || copyOnWrite) && engine->free_local_blocks == 0;
    if (outOfMemory)
    {
        return -1;
    }
    if (tableMissing && !Sequence_addTable(seq, i))
    {
        return -1;
    }
    if (newPage || copyOnWrite)
    {
        Engine_takeBlock(engine, &seq->block_table[i][j]);
    }
    void *address = Engine_blockAddress(engine, copyOnWrite ? oldBlock : seq->block_table[i][j]);
    if (copyOnWrite)
    {
        memcpy(Engine_blockAddress(engine, seq->block_table[i][j]), address, BLOCK_SIZE);
        Engine_dropBlock(engine, oldBlock);
    }
    ((int *)address)[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
    {
        return -1;
    }
    while (engine->active_seqs.next != &engine->active_seqs)
    {
        Sequence *seq = ListNode_toSequence(engine->active_seqs.next);
        ListNode_detach(&seq->node);
        Sequence_delete(seq, engine);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

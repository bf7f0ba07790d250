/* MISTAKE: only the tables below kv_count are released, task 2, shows only with blocks mapped behind kv_count */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

struct AllocatorClass {
    int (*probe)(LLMEngine *self);
    int (*acquire)(LLMEngine *self);
    void (*retain)(LLMEngine *self, int id);
    void (*release)(LLMEngine *self, int id);
    int *(*words)(LLMEngine *self, int id);
};

struct ListClass {
    Sequence *(*find)(LLMEngine *self, int id);
    void (*addLast)(LLMEngine *self, Sequence *s);
    void (*remove)(Sequence *s);
};

struct SequenceClass {
    Sequence *(*construct)(int id, int records);
    int (*addTable)(Sequence *self, int index);
    void (*destruct)(Sequence *self, LLMEngine *owner);
};

static int Alloc_probe(LLMEngine *self) { return self->free_local_blocks; }

static int Alloc_acquire(LLMEngine *self)
{
    int id;
    for (id = 0; id < self->total_local_blocks; id++)
        if (self->ref_count[id] == 0)
            break;
    if (id == self->total_local_blocks)
        return -1;
    self->ref_count[id] = 1;
    self->free_local_blocks--;
    return id;
}

static void Alloc_retain(LLMEngine *self, int id) { self->ref_count[id]++; }

static void Alloc_release(LLMEngine *self, int id)
{
    self->ref_count[id]--;
    if (self->ref_count[id] == 0)
        self->free_local_blocks++;
}

static int *Alloc_words(LLMEngine *self, int id)
{
    return (int *)((char *)self->pool_base_ptr + (size_t)id * BLOCK_SIZE);
}

static const struct AllocatorClass Allocator = { Alloc_probe, Alloc_acquire, Alloc_retain, Alloc_release, Alloc_words };

static Sequence *List_find(LLMEngine *self, int id)
{
    struct list_node *it = self->active_seqs.next;
    for (; it != &self->active_seqs; it = it->next) {
        Sequence *s = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

static void List_addLast(LLMEngine *self, Sequence *s)
{
    struct list_node *tail = self->active_seqs.prev;
    s->node.prev = tail;
    s->node.next = &self->active_seqs;
    tail->next = &s->node;
    self->active_seqs.prev = &s->node;
}

static void List_remove(Sequence *s)
{
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
}

static const struct ListClass List = { List_find, List_addLast, List_remove };

static Sequence *Seq_construct(int id, int records)
{
    Sequence *self = malloc(sizeof(Sequence));
    if (!self)
        return NULL;
    self->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!self->block_table) {
        free(self);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        self->block_table[i] = NULL;
    self->seq_id = id;
    self->kv_count = records;
    return self;
}

static int Seq_addTable(Sequence *self, int index)
{
    if (self->block_table[index])
        return 1;
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    if (!t)
        return 0;
    for (int i = 0; i < L2_PT_SIZE; i++)
        t[i] = -1;
    self->block_table[index] = t;
    return 1;
}

static void Seq_destruct(Sequence *self, LLMEngine *owner)
{
    for (int i = 0; i < L1_PT_SIZE && i * L2_PT_SIZE * KV_PER_BLOCK < self->kv_count; i++) {
        int *t = self->block_table[i];
        if (!t)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (t[j] != -1)
                Allocator.release(owner, t[j]);
        free(t);
    }
    free(self->block_table);
    free(self);
}

static const struct SequenceClass Seq = { Seq_construct, Seq_addTable, Seq_destruct };

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr)
        return NULL;
    if (pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *self = malloc(sizeof(LLMEngine));
    if (!self)
        return NULL;
    self->pool_base_ptr = pool_addr;
    self->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    self->free_local_blocks = self->total_local_blocks;
    self->ref_count = calloc((size_t)self->total_local_blocks, sizeof(int));
    if (!self->ref_count) {
        free(self);
        return NULL;
    }
    self->active_seqs.prev = &self->active_seqs;
    self->active_seqs.next = &self->active_seqs;
    return self;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || List.find(engine, seq_id))
        return NULL;
    if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > Allocator.probe(engine))
        return NULL;
    Sequence *s = Seq.construct(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (int k = 0; k < need; k++) {
        if (!Seq.addTable(s, k / L2_PT_SIZE)) {
            Seq.destruct(s, engine);
            return NULL;
        }
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = Allocator.acquire(engine);
    }
    List.addLast(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    Sequence *s = List.find(engine, seq_id);
    if (!s)
        return -1;
    List.remove(s);
    Seq.destruct(s, engine);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    Sequence *parent = List.find(engine, parent_seq_id);
    if (!parent || List.find(engine, new_seq_id))
        return NULL;
    Sequence *child = Seq.construct(new_seq_id, parent->kv_count);
    if (!child)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!parent->block_table[i])
            continue;
        if (!Seq.addTable(child, i)) {
            Seq.destruct(child, engine);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = parent->block_table[i][j];
            if (id != -1) {
                child->block_table[i][j] = id;
                Allocator.retain(engine, id);
            }
        }
    }
    List.addLast(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    Sequence *s = List.find(engine, seq_id);
    if (!s)
        return -1;
    int logical = s->kv_count / KV_PER_BLOCK;
    if (logical >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int i = logical / L2_PT_SIZE, j = logical % L2_PT_SIZE;
    int old = s->block_table[i] ? s->block_table[i][j] : -1;
    int exclusive = old != -1 && engine->ref_count[old] == 1;
    if (!exclusive) {
        if (Allocator.probe(engine) == 0)
            return -1;
        if (!Seq.addTable(s, i))
            return -1;
        int id = Allocator.acquire(engine);
        if (old != -1) {
            memcpy(Allocator.words(engine, id), Allocator.words(engine, old), BLOCK_SIZE);
            Allocator.release(engine, old);
        }
        s->block_table[i][j] = id;
    }
    Allocator.words(engine, s->block_table[i][j])[s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *s = (Sequence *)((char *)engine->active_seqs.next - offsetof(Sequence, node));
        List.remove(s);
        Seq.destruct(s, engine);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

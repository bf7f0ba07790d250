/* MISTAKE: append reuses the block found by an earlier call (static array), task 4, shows with any append that needs a block after another call */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NTABLES L1_PT_SIZE
#define NBLOCKS (L1_PT_SIZE * L2_PT_SIZE)

static int *TABLES[NTABLES];   /* tables of the sequence being built */
static int IDS[NBLOCKS];       /* its blocks */
static int NIDS;

static int *GetTable(void)
{
    int *Table = (int *)malloc(L2_PT_SIZE * sizeof(int));
    int I;
    if (Table == NULL)
        return NULL;
    for (I = 0; I < L2_PT_SIZE; I++)
        Table[I] = -1;
    return Table;
}

/* 1 and TABLES filled, or 0 and nothing allocated */
static int GatherTables(const int *Wanted)
{
    int I;
    for (I = 0; I < NTABLES; I++)
        TABLES[I] = NULL;
    for (I = 0; I < NTABLES; I++) {
        if (!Wanted[I])
            continue;
        TABLES[I] = GetTable();
        if (TABLES[I] == NULL) {
            for (I = 0; I < NTABLES; I++) {
                free(TABLES[I]);
                TABLES[I] = NULL;
            }
            return 0;
        }
    }
    return 1;
}

static void GatherBlocks(const LLMEngine *Engine, int Count)
{
    int I;
    NIDS = 0;
    for (I = 0; I < Engine->total_local_blocks; I++) {
        if (NIDS == Count)
            break;
        if (Engine->ref_count[I] == 0)
            IDS[NIDS++] = I;
    }
}

static void CommitBlock(LLMEngine *Engine, int Id)
{
    Engine->ref_count[Id] = 1;
    Engine->free_local_blocks--;
}

/* builds the sequence out of TABLES; NULL and TABLES freed when there is no memory */
static Sequence *BuildFromScratch(LLMEngine *Engine, int Id, int Count)
{
    Sequence *Seq = (Sequence *)malloc(sizeof(Sequence));
    int I;
    if (Seq != NULL) {
        Seq->block_table = (int **)malloc(NTABLES * sizeof(int *));
        if (Seq->block_table == NULL) {
            free(Seq);
            Seq = NULL;
        }
    }
    if (Seq == NULL) {
        for (I = 0; I < NTABLES; I++)
            free(TABLES[I]);
        return NULL;
    }
    for (I = 0; I < NTABLES; I++)
        Seq->block_table[I] = TABLES[I];
    Seq->seq_id = Id;
    Seq->kv_count = Count;
    Seq->node.prev = Engine->active_seqs.prev;
    Seq->node.next = &Engine->active_seqs;
    Engine->active_seqs.prev->next = &Seq->node;
    Engine->active_seqs.prev = &Seq->node;
    return Seq;
}

static Sequence *SeqOfNode(struct list_node *Node)
{
    return (Sequence *)((char *)Node - offsetof(Sequence, node));
}

static Sequence *FindSeq(LLMEngine *Engine, int Id)
{
    struct list_node *Node;
    for (Node = Engine->active_seqs.next; Node != &Engine->active_seqs; Node = Node->next)
        if (SeqOfNode(Node)->seq_id == Id)
            return SeqOfNode(Node);
    return NULL;
}

static void FreeMemory(Sequence *Seq)
{
    int I;
    for (I = 0; I < NTABLES; I++)
        free(Seq->block_table[I]);
    free(Seq->block_table);
    free(Seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *Engine;
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    Engine = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (Engine == NULL)
        return NULL;
    Engine->pool_base_ptr = pool_addr;
    Engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    Engine->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    Engine->ref_count = (int *)calloc(pool_size / BLOCK_SIZE, sizeof(int));
    if (Engine->ref_count == NULL) {
        free(Engine);
        return NULL;
    }
    Engine->active_seqs.prev = &Engine->active_seqs;
    Engine->active_seqs.next = &Engine->active_seqs;
    return Engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    int Wanted[NTABLES], I, Need;
    Sequence *Seq;
    if (initial_kv_len <= 0)
        return NULL;
    if (FindSeq(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > NBLOCKS * KV_PER_BLOCK)
        return NULL;
    Need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (Need > engine->free_local_blocks)
        return NULL;
    for (I = 0; I < NTABLES; I++)
        Wanted[I] = I < (Need + L2_PT_SIZE - 1) / L2_PT_SIZE;
    if (!GatherTables(Wanted))
        return NULL;
    Seq = BuildFromScratch(engine, seq_id, initial_kv_len);
    if (Seq == NULL)
        return NULL;
    GatherBlocks(engine, Need);
    for (I = 0; I < NIDS; I++) {
        Seq->block_table[I / L2_PT_SIZE][I % L2_PT_SIZE] = IDS[I];
        CommitBlock(engine, IDS[I]);
    }
    return Seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *Seq = FindSeq(engine, seq_id);
    int I, J, Id;
    if (Seq == NULL)
        return -1;
    Seq->node.prev->next = Seq->node.next;
    Seq->node.next->prev = Seq->node.prev;
    for (I = 0; I < NTABLES; I++) {
        if (Seq->block_table[I] == NULL)
            continue;
        for (J = 0; J < L2_PT_SIZE; J++) {
            Id = Seq->block_table[I][J];
            if (Id != -1) {
                engine->ref_count[Id]--;
                if (engine->ref_count[Id] == 0)
                    engine->free_local_blocks++;
            }
        }
    }
    FreeMemory(Seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *Parent = FindSeq(engine, parent_seq_id), *Child;
    int Wanted[NTABLES], I, J;
    if (Parent == NULL || FindSeq(engine, new_seq_id) != NULL)
        return NULL;
    for (I = 0; I < NTABLES; I++)
        Wanted[I] = Parent->block_table[I] != NULL;
    if (!GatherTables(Wanted))
        return NULL;
    Child = BuildFromScratch(engine, new_seq_id, Parent->kv_count);
    if (Child == NULL)
        return NULL;
    for (I = 0; I < NTABLES; I++) {
        if (!Wanted[I])
            continue;
        for (J = 0; J < L2_PT_SIZE; J++) {
            Child->block_table[I][J] = Parent->block_table[I][J];
            if (Child->block_table[I][J] != -1)
                engine->ref_count[Child->block_table[I][J]]++;
        }
    }
    return Child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *Seq = FindSeq(engine, seq_id);
    int Logical, Offset, I, J, Old, Now;
    char *Pool = (char *)engine->pool_base_ptr;
    int *Words;
    if (Seq == NULL)
        return -1;
    Logical = Seq->kv_count / KV_PER_BLOCK;
    Offset = Seq->kv_count % KV_PER_BLOCK;
    if (Logical >= NBLOCKS)
        return -1;
    I = Logical / L2_PT_SIZE;
    J = Logical % L2_PT_SIZE;
    Old = Seq->block_table[I] == NULL ? -1 : Seq->block_table[I][J];
    Now = Old;
    if (Old == -1 || engine->ref_count[Old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (Seq->block_table[I] == NULL) {
            Seq->block_table[I] = GetTable();
            if (Seq->block_table[I] == NULL)
                return -1;
        }
        if (NIDS == 0)
            GatherBlocks(engine, 1);
        Now = IDS[0];
        CommitBlock(engine, Now);
        if (Old != -1) {
            memcpy(Pool + (size_t)Now * BLOCK_SIZE, Pool + (size_t)Old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[Old]--;
        }
        Seq->block_table[I][J] = Now;
    }
    Words = (int *)(Pool + (size_t)Now * BLOCK_SIZE);
    Words[Offset] = kv_data;
    Seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *Node = engine->active_seqs.next, *Next;
    while (Node != &engine->active_seqs) {
        Next = Node->next;
        FreeMemory(SeqOfNode(Node));
        Node = Next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

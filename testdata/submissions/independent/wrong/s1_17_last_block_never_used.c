/* MISTAKE: first fit loop ends at total - 2, task 2, shows when the last block of the pool is needed */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TRUE 1
#define FALSE 0

static Sequence *PSeqFromNode(struct list_node *pNode)
{
    return (Sequence *) (((char *) pNode) - offsetof(Sequence, node));
}

static int FFindSeq(LLMEngine *pEngine, int nId, Sequence **ppSeq)
{
    struct list_node *pNode;
    int fFound = FALSE;

    pNode = pEngine->active_seqs.next;
    while (!fFound && pNode != &pEngine->active_seqs)
    {
        if (PSeqFromNode(pNode)->seq_id == nId)
        {
            *ppSeq = PSeqFromNode(pNode);
            fFound = TRUE;
        }
        pNode = pNode->next;
    }
    return fFound;
}

static int IFirstFree(LLMEngine *pEngine)
{
    int iBlock;
    for (iBlock = 0; iBlock < pEngine->total_local_blocks - 1; iBlock++)
    {
        if (pEngine->ref_count[iBlock] == 0)
            return iBlock;
    }
    return -1;
}

static void AssignBlock(LLMEngine *pEngine, int *pnEntry, int iBlock)
{
    *pnEntry = iBlock;
    pEngine->ref_count[iBlock] = 1;
    pEngine->free_local_blocks--;
}

static int FEnsureTable(Sequence *pSeq, int iTable)
{
    int iEntry;
    int *pnTable = pSeq->block_table[iTable];

    if (pnTable != NULL)
        return TRUE;
    pnTable = (int *) malloc(L2_PT_SIZE * sizeof(int));
    if (pnTable == NULL)
        return FALSE;
    for (iEntry = 0; iEntry < L2_PT_SIZE; iEntry++)
        pnTable[iEntry] = -1;
    pSeq->block_table[iTable] = pnTable;
    return TRUE;
}

static Sequence *PSeqAlloc(int nId, int cRecords)
{
    Sequence *pSeq;
    int iTable;

    pSeq = (Sequence *) malloc(sizeof(Sequence));
    if (pSeq == NULL)
        return NULL;
    pSeq->block_table = (int **) malloc(L1_PT_SIZE * sizeof(int *));
    if (pSeq->block_table == NULL)
    {
        free(pSeq);
        return NULL;
    }
    for (iTable = 0; iTable < L1_PT_SIZE; iTable++)
        pSeq->block_table[iTable] = NULL;
    pSeq->seq_id = nId;
    pSeq->kv_count = cRecords;
    return pSeq;
}

static void SeqFree(LLMEngine *pEngine, Sequence *pSeq)
{
    int iTable, iEntry, iBlock;

    for (iTable = 0; iTable < L1_PT_SIZE; iTable++)
    {
        if (pSeq->block_table[iTable] != NULL)
        {
            for (iEntry = 0; iEntry < L2_PT_SIZE; iEntry++)
            {
                iBlock = pSeq->block_table[iTable][iEntry];
                if (iBlock != -1)
                {
                    pEngine->ref_count[iBlock]--;
                    if (pEngine->ref_count[iBlock] == 0)
                        pEngine->free_local_blocks++;
                }
            }
            free(pSeq->block_table[iTable]);
        }
    }
    free(pSeq->block_table);
    free(pSeq);
}

static void SeqLinkLast(LLMEngine *pEngine, Sequence *pSeq)
{
    pSeq->node.prev = pEngine->active_seqs.prev;
    pSeq->node.next = &pEngine->active_seqs;
    pEngine->active_seqs.prev->next = &pSeq->node;
    pEngine->active_seqs.prev = &pSeq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *pEngine;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    pEngine = (LLMEngine *) malloc(sizeof(LLMEngine));
    if (pEngine != NULL)
    {
        pEngine->total_local_blocks = (int) (pool_size / BLOCK_SIZE);
        pEngine->free_local_blocks = pEngine->total_local_blocks;
        pEngine->pool_base_ptr = pool_addr;
        pEngine->ref_count = (int *) calloc((size_t) pEngine->total_local_blocks, sizeof(int));
        if (pEngine->ref_count == NULL)
        {
            free(pEngine);
            pEngine = NULL;
        }
        else
        {
            pEngine->active_seqs.prev = &pEngine->active_seqs;
            pEngine->active_seqs.next = &pEngine->active_seqs;
        }
    }
    return pEngine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    {
        Sequence *pSeq;
        int cBlocks, iLogical;

        if (initial_kv_len <= 0)
            return NULL;
        if (FFindSeq(engine, seq_id, &pSeq))
            return NULL;
        if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
            return NULL;
        cBlocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
        if (cBlocks > engine->free_local_blocks)
            return NULL;
        pSeq = PSeqAlloc(seq_id, initial_kv_len);
        if (pSeq == NULL)
            return NULL;
        for (iLogical = 0; iLogical < cBlocks; iLogical++)
        {
            if (!FEnsureTable(pSeq, iLogical / L2_PT_SIZE))
            {
                SeqFree(engine, pSeq);
                return NULL;
            }
            AssignBlock(engine, &pSeq->block_table[iLogical / L2_PT_SIZE][iLogical % L2_PT_SIZE],
                        IFirstFree(engine));
        }
        SeqLinkLast(engine, pSeq);
        return pSeq;
    }
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    {
        Sequence *pSeq;

        if (!FFindSeq(engine, seq_id, &pSeq))
            return -1;
        pSeq->node.prev->next = pSeq->node.next;
        pSeq->node.next->prev = pSeq->node.prev;
        SeqFree(engine, pSeq);
        return 0;
    }
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    {
        Sequence *pParent, *pChild;
        int iTable, iEntry, iBlock;

        if (!FFindSeq(engine, parent_seq_id, &pParent))
            return NULL;
        if (FFindSeq(engine, new_seq_id, &pChild))
            return NULL;
        pChild = PSeqAlloc(new_seq_id, pParent->kv_count);
        if (pChild == NULL)
            return NULL;
        for (iTable = 0; iTable < L1_PT_SIZE; iTable++)
        {
            if (pParent->block_table[iTable] == NULL)
                continue;
            if (!FEnsureTable(pChild, iTable))
            {
                SeqFree(engine, pChild);
                return NULL;
            }
            for (iEntry = 0; iEntry < L2_PT_SIZE; iEntry++)
            {
                iBlock = pParent->block_table[iTable][iEntry];
                if (iBlock != -1)
                {
                    pChild->block_table[iTable][iEntry] = iBlock;
                    engine->ref_count[iBlock]++;
                }
            }
        }
        SeqLinkLast(engine, pChild);
        return pChild;
    }
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    {
        Sequence *pSeq;
        int iLogical, iOffset, iTable, iEntry, iOld, iNew;
        char *pbPool = (char *) engine->pool_base_ptr;
        int fMapped, fShared;

        if (!FFindSeq(engine, seq_id, &pSeq))
            return -1;
        iLogical = pSeq->kv_count / KV_PER_BLOCK;
        iOffset = pSeq->kv_count % KV_PER_BLOCK;
        if (iLogical >= L1_PT_SIZE * L2_PT_SIZE)
            return -1;
        iTable = iLogical / L2_PT_SIZE;
        iEntry = iLogical % L2_PT_SIZE;
        fMapped = pSeq->block_table[iTable] != NULL && pSeq->block_table[iTable][iEntry] != -1;
        fShared = fMapped && engine->ref_count[pSeq->block_table[iTable][iEntry]] > 1;
        if (!fMapped || fShared)
        {
            if (engine->free_local_blocks == 0)
                return -1;
            if (!FEnsureTable(pSeq, iTable))
                return -1;
            iNew = IFirstFree(engine);
            if (fShared)
            {
                iOld = pSeq->block_table[iTable][iEntry];
                memcpy(pbPool + (size_t) iNew * BLOCK_SIZE, pbPool + (size_t) iOld * BLOCK_SIZE, BLOCK_SIZE);
                engine->ref_count[iOld]--;
            }
            AssignBlock(engine, &pSeq->block_table[iTable][iEntry], iNew);
        }
        ((int *) (pbPool + (size_t) pSeq->block_table[iTable][iEntry] * BLOCK_SIZE))[iOffset] = kv_data;
        pSeq->kv_count++;
        return 0;
    }
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    {
        struct list_node *pNode, *pNext;

        for (pNode = engine->active_seqs.next; pNode != &engine->active_seqs; pNode = pNext)
        {
            pNext = pNode->next;
            SeqFree(engine, PSeqFromNode(pNode));
        }
        free(engine->ref_count);
        free(engine);
        return 0;
    }
}

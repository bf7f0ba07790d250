/* MISTAKE: create_sequence refuses negative ids, task 2, shows with ids below 0 */
#include "llm_memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

//zhao dao xu lie
Sequence* zhao_xulie(LLMEngine *engine, int hao)
{
    struct list_node *jiedian;
    jiedian = engine->active_seqs.next;
    while (1)
    {
        if (jiedian == &(engine->active_seqs))
        {
            break;
        }
        Sequence *xulie;
        xulie = (Sequence*)((char*)jiedian - offsetof(Sequence, node));
        if (xulie->seq_id == hao)
        {
            return xulie;
        }
        jiedian = jiedian->next;
    }
    return NULL;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL)
    {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE)
    {
        return NULL;
    }
    LLMEngine *engine;
    engine = (LLMEngine*)malloc(sizeof(LLMEngine));
    if (engine == NULL)
    {
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = pool_size / BLOCK_SIZE;
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = (int*)calloc(engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL)
    {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &(engine->active_seqs);
    engine->active_seqs.next = &(engine->active_seqs);
    return engine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }
    if (initial_kv_len <= 0 || seq_id < 0)
    {
        return NULL;
    }
    Sequence *chongfu;
    chongfu = zhao_xulie(engine, seq_id);
    if (chongfu != NULL)
    {
        return NULL;
    }
    if (initial_kv_len > 4096) // fang zhi yi chu
    {
        return NULL;
    }
    int xuyao;
    xuyao = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (xuyao > 256)
    {
        return NULL;
    }
    if (xuyao > engine->free_local_blocks)
    {
        return NULL;
    }
    Sequence *seq;
    seq = (Sequence*)malloc(sizeof(Sequence));
    if (seq == NULL)
    {
        return NULL;
    }
    seq->block_table = (int**)malloc(L1_PT_SIZE * sizeof(int*));
    if (seq->block_table == NULL)
    {
        free(seq);
        return NULL;
    }
    int i;
    int j;
    for (i = 0; i < L1_PT_SIZE; i++)
    {
        seq->block_table[i] = NULL;
    }
    int k;
    for (k = 0; k < xuyao; k++)
    {
        int l1 = k / L2_PT_SIZE;
        int l2 = k % L2_PT_SIZE;
        if (seq->block_table[l1] == NULL)
        {
            seq->block_table[l1] = (int*)malloc(L2_PT_SIZE * sizeof(int));
            if (seq->block_table[l1] == NULL)
            {
                // shi bai le, quan bu huan hui qu
                for (i = 0; i < l1; i++)
                {
                    for (j = 0; j < L2_PT_SIZE; j++)
                    {
                        int b = seq->block_table[i][j];
                        if (b != -1)
                        {
                            engine->ref_count[b] = 0;
                            engine->free_local_blocks = engine->free_local_blocks + 1;
                        }
                    }
                    free(seq->block_table[i]);
                }
                free(seq->block_table);
                free(seq);
                return NULL;
            }
            for (j = 0; j < L2_PT_SIZE; j++)
            {
                seq->block_table[l1][j] = -1;
            }
        }
        int kuai = -1;
        for (i = 0; i < engine->total_local_blocks; i++)
        {
            if (engine->ref_count[i] == 0)
            {
                kuai = i;
                break;
            }
        }
        seq->block_table[l1][l2] = kuai;
        engine->ref_count[kuai] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;
    }
    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    struct list_node *head = &(engine->active_seqs);
    struct list_node *weiba = head->prev;
    weiba->next = &(seq->node);
    seq->node.prev = weiba;
    seq->node.next = head;
    head->prev = &(seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence *seq;
    seq = zhao_xulie(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }
    struct list_node *qian = seq->node.prev;
    struct list_node *hou = seq->node.next;
    qian->next = hou;
    hou->prev = qian;
    int i;
    int j;
    for (i = 0; i < L1_PT_SIZE; i++)
    {
        if (seq->block_table[i] != NULL)
        {
            for (j = 0; j < L2_PT_SIZE; j++)
            {
                if (seq->block_table[i][j] != -1)
                {
                    int b = seq->block_table[i][j];
                    engine->ref_count[b] = engine->ref_count[b] - 1;
                    if (engine->ref_count[b] == 0)
                    {
                        engine->free_local_blocks = engine->free_local_blocks + 1;
                    }
                }
            }
            free(seq->block_table[i]);
            seq->block_table[i] = NULL;
        }
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }
    Sequence *fu;
    fu = zhao_xulie(engine, parent_seq_id);
    if (fu == NULL)
    {
        return NULL;
    }
    if (zhao_xulie(engine, new_seq_id) != NULL)
    {
        return NULL;
    }
    Sequence *zi;
    zi = (Sequence*)malloc(sizeof(Sequence));
    if (zi == NULL)
    {
        return NULL;
    }
    zi->block_table = (int**)malloc(L1_PT_SIZE * sizeof(int*));
    if (zi->block_table == NULL)
    {
        free(zi);
        return NULL;
    }
    int i;
    int j;
    for (i = 0; i < L1_PT_SIZE; i++)
    {
        zi->block_table[i] = NULL;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
    {
        if (fu->block_table[i] != NULL)
        {
            zi->block_table[i] = (int*)malloc(L2_PT_SIZE * sizeof(int));
            if (zi->block_table[i] == NULL)
            {
                for (j = 0; j < i; j++)
                {
                    if (zi->block_table[j] != NULL)
                    {
                        free(zi->block_table[j]);
                    }
                }
                free(zi->block_table);
                free(zi);
                return NULL;
            }
            for (j = 0; j < L2_PT_SIZE; j++)
            {
                zi->block_table[i][j] = -1;
            }
            for (j = 0; j < L2_PT_SIZE; j++)
            {
                zi->block_table[i][j] = fu->block_table[i][j];
            }
        }
    }
    for (i = 0; i < L1_PT_SIZE; i++)
    {
        if (zi->block_table[i] != NULL)
        {
            for (j = 0; j < L2_PT_SIZE; j++)
            {
                if (zi->block_table[i][j] != -1)
                {
                    int b = zi->block_table[i][j];
                    engine->ref_count[b] = engine->ref_count[b] + 1;
                }
            }
        }
    }
    zi->kv_count = fu->kv_count;
    zi->seq_id = new_seq_id;
    struct list_node *head = &(engine->active_seqs);
    struct list_node *weiba = head->prev;
    weiba->next = &(zi->node);
    zi->node.prev = weiba;
    zi->node.next = head;
    head->prev = &(zi->node);
    return zi;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence *seq;
    seq = zhao_xulie(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
    {
        return -1;
    }
    int l1 = logical_idx / L2_PT_SIZE;
    int l2 = logical_idx % L2_PT_SIZE;
    int zhuangtai; // 0 du zhan, 1 xin ye, 2 fu zhi
    if (seq->block_table[l1] == NULL)
    {
        zhuangtai = 1;
    }
    else if (seq->block_table[l1][l2] == -1)
    {
        zhuangtai = 1;
    }
    else if (engine->ref_count[seq->block_table[l1][l2]] > 1)
    {
        zhuangtai = 2;
    }
    else
    {
        zhuangtai = 0;
    }
    if (zhuangtai != 0)
    {
        if (engine->free_local_blocks == 0)
        {
            return -1;
        }
    }
    int i;
    if (seq->block_table[l1] == NULL)
    {
        int *biao = (int*)malloc(L2_PT_SIZE * sizeof(int));
        if (biao == NULL)
        {
            return -1;
        }
        for (i = 0; i < L2_PT_SIZE; i++)
        {
            biao[i] = -1;
        }
        seq->block_table[l1] = biao;
    }
    char *chi = (char*)engine->pool_base_ptr;
    if (zhuangtai == 1)
    {
        int kuai = -1;
        for (i = 0; i < engine->total_local_blocks; i++)
        {
            if (engine->ref_count[i] == 0)
            {
                kuai = i;
                break;
            }
        }
        seq->block_table[l1][l2] = kuai;
        engine->ref_count[kuai] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;
    }
    if (zhuangtai == 2)
    {
        int jiu = seq->block_table[l1][l2];
        int kuai = -1;
        for (i = 0; i < engine->total_local_blocks; i++)
        {
            if (engine->ref_count[i] == 0)
            {
                kuai = i;
                break;
            }
        }
        memcpy(chi + (size_t)kuai * BLOCK_SIZE, chi + (size_t)jiu * BLOCK_SIZE, 64);
        engine->ref_count[jiu] = engine->ref_count[jiu] - 1;
        engine->ref_count[kuai] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;
        seq->block_table[l1][l2] = kuai;
    }
    int wuli = seq->block_table[l1][l2];
    int *dizhi = (int*)(chi + (size_t)wuli * BLOCK_SIZE);
    dizhi[offset] = kv_data;
    seq->kv_count = seq->kv_count + 1;
    //printf("append ok\n");
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
    {
        return -1;
    }
    struct list_node *jiedian = engine->active_seqs.next;
    while (jiedian != &(engine->active_seqs))
    {
        struct list_node *xia = jiedian->next;
        Sequence *seq = (Sequence*)((char*)jiedian - offsetof(Sequence, node));
        int i;
        for (i = 0; i < L1_PT_SIZE; i++)
        {
            if (seq->block_table[i] != NULL)
            {
                free(seq->block_table[i]);
            }
        }
        free(seq->block_table);
        free(seq);
        jiedian = xia;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

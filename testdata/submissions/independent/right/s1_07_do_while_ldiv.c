/* STYLE: div() for the address arithmetic, do-while loops, result structs, Chinese comments */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

enum { OK = 0, ERR = -1, UNMAPPED = -1, MAX_BLOCKS = L1_PT_SIZE * L2_PT_SIZE };

/* 由链表结点得到序列 */
static Sequence *owner(struct list_node *p)
{
    char *c = (char *)p;
    c -= offsetof(Sequence, node);
    return (Sequence *)c;
}

/* 查找序列, 找不到返回 NULL */
static Sequence *locate(LLMEngine *engine, int id)
{
    struct list_node *p = &engine->active_seqs;
    do {
        p = p->next;
        if (p == &engine->active_seqs)
            return NULL;
    } while (owner(p)->seq_id != id);
    return owner(p);
}

/* 第一个空闲块 */
static int first_free(const LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            return i;
        }
    }
    return UNMAPPED;
}

/* 分配二级表, 全部置为 -1 */
static int *make_l2(void)
{
    int *t = (int *)malloc(sizeof(int) * L2_PT_SIZE);
    int k = L2_PT_SIZE;
    if (t == NULL) {
        return NULL;
    }
    do {
        t[--k] = UNMAPPED;
    } while (k > 0);
    return t;
}

/* 释放一个序列的所有资源 */
static void tear_down(LLMEngine *engine, Sequence *seq)
{
    int i = 0;
    do {
        int *t = seq->block_table[i];
        if (t != NULL) {
            int j = 0;
            do {
                if (t[j] != UNMAPPED) {
                    engine->ref_count[t[j]] -= 1;
                    if (engine->ref_count[t[j]] == 0) {
                        engine->free_local_blocks += 1;
                    }
                }
            } while (++j < L2_PT_SIZE);
            free(t);
        }
    } while (++i < L1_PT_SIZE);
    free(seq->block_table);
    free(seq);
}

static Sequence *new_sequence(void)
{
    Sequence *seq = (Sequence *)malloc(sizeof(Sequence));
    if (seq != NULL) {
        int i = 0;
        seq->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
        if (seq->block_table == NULL) {
            free(seq);
            return NULL;
        }
        do {
            seq->block_table[i] = NULL;
        } while (++i < L1_PT_SIZE);
    }
    return seq;
}

/* 插到链表末尾 */
static void append_node(struct list_node *head, struct list_node *x)
{
    x->next = head;
    x->prev = head->prev;
    head->prev->next = x;
    head->prev = x;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *engine = NULL;
    if (pool_addr == NULL || pool_size < (size_t)BLOCK_SIZE) {
        return NULL;
    }
    engine = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = (int *)calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &(engine->active_seqs);
    engine->active_seqs.next = &(engine->active_seqs);
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    Sequence *seq;
    div_t d;
    int need, n = 0;
    if (engine == NULL) {
        return NULL;
    }
    /* 第一阶段: 参数检查 */
    if (initial_kv_len <= 0) {
        return NULL;
    }
    if (locate(engine, seq_id) != NULL) {
        return NULL;
    }
    /* 第二阶段: 容量检查 */
    d = div(initial_kv_len, KV_PER_BLOCK);
    need = d.quot + (d.rem > 0 ? 1 : 0);
    if (need > MAX_BLOCKS || need > engine->free_local_blocks) {
        return NULL;
    }
    seq = new_sequence();
    if (seq == NULL) {
        return NULL;
    }
    do {
        int blk;
        d = div(n, L2_PT_SIZE);
        if (seq->block_table[d.quot] == NULL) {
            seq->block_table[d.quot] = make_l2();
            if (seq->block_table[d.quot] == NULL) {
                tear_down(engine, seq); /* 回滚 */
                return NULL;
            }
        }
        blk = first_free(engine);
        seq->block_table[d.quot][d.rem] = blk;
        engine->ref_count[blk] = 1;
        engine->free_local_blocks -= 1;
    } while (++n < need);
    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    append_node(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *seq;
    if (engine == NULL) {
        return ERR;
    }
    seq = locate(engine, seq_id);
    if (seq == NULL) {
        return ERR;
    }
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    tear_down(engine, seq);
    return OK;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent, *child;
    int i = 0;
    if (engine == NULL) {
        return NULL;
    }
    parent = locate(engine, parent_seq_id);
    if (parent == NULL) {
        return NULL;
    }
    if (locate(engine, new_seq_id) != NULL) {
        return NULL;
    }
    child = new_sequence();
    if (child == NULL) {
        return NULL;
    }
    do {
        int *from = parent->block_table[i];
        if (from != NULL) {
            int *to = make_l2();
            int j = 0;
            if (to == NULL) {
                tear_down(engine, child);
                return NULL;
            }
            child->block_table[i] = to;
            do {
                to[j] = from[j];
                if (to[j] != UNMAPPED) {
                    engine->ref_count[to[j]] += 1;
                }
            } while (++j < L2_PT_SIZE);
        }
    } while (++i < L1_PT_SIZE);
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    append_node(&engine->active_seqs, &child->node);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *seq;
    div_t rec, lvl;
    int **slot;
    int old, blk;
    char *base;
    if (engine == NULL) {
        return ERR;
    }
    seq = locate(engine, seq_id);
    if (seq == NULL) {
        return ERR;
    }
    rec = div(seq->kv_count, KV_PER_BLOCK);
    if (rec.quot >= MAX_BLOCKS) {
        return ERR;
    }
    lvl = div(rec.quot, L2_PT_SIZE);
    slot = &seq->block_table[lvl.quot];
    old = (*slot != NULL) ? (*slot)[lvl.rem] : UNMAPPED;
    base = (char *)engine->pool_base_ptr;
    blk = old;
    if (old == UNMAPPED || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0) {
            return ERR; /* 内存不足, 不改变任何状态 */
        }
        if (*slot == NULL) {
            int *t = make_l2();
            if (t == NULL) {
                return ERR;
            }
            *slot = t;
        }
        blk = first_free(engine);
        if (old != UNMAPPED) { /* 写时复制 */
            memcpy(base + (size_t)blk * BLOCK_SIZE, base + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old] -= 1;
        }
        engine->ref_count[blk] = 1;
        engine->free_local_blocks -= 1;
        (*slot)[lvl.rem] = blk;
    }
    ((int *)(base + (size_t)blk * BLOCK_SIZE))[rec.rem] = kv_data;
    seq->kv_count += 1;
    return OK;
}

int llm_destroy(LLMEngine *engine)
{
    struct list_node *p;
    if (engine == NULL) {
        return ERR;
    }
    p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *q = p->next;
        tear_down(engine, owner(p));
        p = q;
    }
    free(engine->ref_count);
    free(engine);
    return OK;
}

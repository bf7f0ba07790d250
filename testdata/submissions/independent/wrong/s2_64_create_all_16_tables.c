/* MISTAKE: create_sequence allocates all 16 L2 tables, task 2, shows with fewer than 3,841 records: tables that are not needed */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define LAST_LOGICAL (L1_PT_SIZE * L2_PT_SIZE - 1)

/* 노드에서 시퀀스 구하기 */
#define TO_SEQ(ptr) ((Sequence *)(void *)((char *)(ptr) - offsetof(Sequence, node)))

/* 시퀀스 찾기 */
static Sequence *chatgi(const LLMEngine *e, int id)
{
    for (struct list_node *p = e->active_seqs.next; p != &e->active_seqs; p = p->next) {
        Sequence *s = TO_SEQ(p);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

/* 첫 번째 빈 블록 */
static int bin_block(const LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++) {
        if (e->ref_count[i] != 0)
            continue;
        return i;
    }
    return -1;
}

/* 2단계 테이블 만들기, 실패하면 -1 */
static int table_mandeulgi(int **jari)
{
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    if (!t)
        return -1;
    int *p = t + L2_PT_SIZE;
    while (p-- != t)
        *p = -1;
    *jari = t;
    return 0;
}

/* 메모리만 해제 */
static void haeje(Sequence *s)
{
    int **t = s->block_table;
    for (int i = 0; i < L1_PT_SIZE; i++, t++)
        if (*t)
            free(*t);
    free(s->block_table);
    free(s);
}

static Sequence *saero(void)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (!s)
        return NULL;
    if (!(s->block_table = calloc(L1_PT_SIZE, sizeof(int *)))) {
        free(s);
        return NULL;
    }
    return s;
}

/* 맨 뒤에 붙이기 */
static Sequence *dwi_e(LLMEngine *e, Sequence *s, int id, int count)
{
    s->seq_id = id;
    s->kv_count = count;
    s->node.prev = e->active_seqs.prev;
    s->node.next = &e->active_seqs;
    s->node.prev->next = &s->node;
    s->node.next->prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof(LLMEngine));
    if (!e)
        return NULL;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    e->active_seqs.prev = &e->active_seqs;
    e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (chatgi(engine, seq_id))
        return NULL;
    int last = (initial_kv_len - 1) / KV_PER_BLOCK; /* 마지막 논리 블록 */
    if (last > LAST_LOGICAL || last >= engine->free_local_blocks)
        return NULL;
    Sequence *s = saero();
    if (!s)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (table_mandeulgi(&s->block_table[i]) != 0) {
            haeje(s);
            return NULL;
        }
    }
    for (int k = 0; k <= last; k++) {
        int b = bin_block(engine);
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }
    return dwi_e(engine, s, seq_id, initial_kv_len);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    Sequence *s = chatgi(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!s->block_table[i])
            continue; /* break 하면 안 됨 */
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = s->block_table[i][j];
            if (b == -1)
                continue;
            if (--engine->ref_count[b] == 0)
                engine->free_local_blocks++;
        }
    }
    haeje(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    Sequence *bumo = chatgi(engine, parent_seq_id);
    if (!bumo || chatgi(engine, new_seq_id))
        return NULL;
    Sequence *jasik = saero();
    if (!jasik)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (bumo->block_table[i] && table_mandeulgi(&jasik->block_table[i]) != 0) {
            haeje(jasik);
            return NULL;
        }
    }
    for (int k = 0; k <= LAST_LOGICAL; k++) {
        int i = k / L2_PT_SIZE, j = k % L2_PT_SIZE;
        if (!bumo->block_table[i] || bumo->block_table[i][j] == -1)
            continue;
        jasik->block_table[i][j] = bumo->block_table[i][j];
        engine->ref_count[bumo->block_table[i][j]]++;
    }
    return dwi_e(engine, jasik, new_seq_id, bumo->kv_count);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    Sequence *s = chatgi(engine, seq_id);
    if (!s)
        return -1;
    int k = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (k > LAST_LOGICAL)
        return -1;
    int i = k / L2_PT_SIZE, j = k % L2_PT_SIZE;
    int b = s->block_table[i] ? s->block_table[i][j] : -1;
    char *base = (char *)engine->pool_base_ptr;
    if (b == -1 || engine->ref_count[b] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        int nb = bin_block(engine);
        if (nb == -1)
            return -1;
        if (!s->block_table[i] && table_mandeulgi(&s->block_table[i]) != 0)
            return -1;
        if (b != -1) {
            /* 쓰기 시 복사 */
            memcpy(base + (size_t)nb * BLOCK_SIZE, base + (size_t)b * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[b]--;
        }
        engine->ref_count[nb] = 1;
        engine->free_local_blocks--;
        s->block_table[i][j] = nb;
        b = nb;
    }
    *((int *)(base + (size_t)b * BLOCK_SIZE) + off) = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *q = p->next;
        haeje(TO_SEQ(p));
        p = q;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

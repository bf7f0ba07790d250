/* STYLE: aligned_alloc for the tables, inttypes/ptrdiff_t, restrict, uintptr_t arithmetic */
#include "llm_memory.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CACHELINE ((size_t)64)

static Sequence *seq_at(struct list_node *n)
{
    return (Sequence *)((uintptr_t)n - (uintptr_t)offsetof(Sequence, node));
}

static int32_t *new_leaf(void)
{
    int32_t *leaf = aligned_alloc(CACHELINE, L2_PT_SIZE * sizeof(int32_t));
    if (leaf == NULL)
        return NULL;
    for (int32_t *it = leaf; it < leaf + L2_PT_SIZE; it++)
        *it = INT32_C(-1);
    return leaf;
}

static int32_t **new_root(void)
{
    int32_t **root = aligned_alloc(CACHELINE, L1_PT_SIZE * sizeof(int32_t *));
    if (root != NULL)
        for (size_t k = 0; k < L1_PT_SIZE; k++)
            root[k] = NULL;
    return root;
}

static void drop_root(int32_t **root)
{
    for (size_t k = 0; k < L1_PT_SIZE; k++)
        free(root[k]);
    free(root);
}

static Sequence *get_seq(LLMEngine *eng, int32_t id)
{
    struct list_node *const end = &eng->active_seqs;
    struct list_node *n = end;
    while ((n = n->next) != end)
        if (seq_at(n)->seq_id == id)
            return seq_at(n);
    return NULL;
}

static int32_t reserve(LLMEngine *eng)
{
    for (int32_t i = 0; i < eng->total_local_blocks; i++) {
        if (eng->ref_count[i] != 0)
            continue;
        eng->ref_count[i] = 1;
        eng->free_local_blocks -= 1;
        return i;
    }
    return -1;
}

static void unref(LLMEngine *eng, int32_t blk)
{
    const int32_t left = --eng->ref_count[blk];
    if (left == 0)
        eng->free_local_blocks += 1;
}

static uint8_t *blk_ptr(const LLMEngine *eng, int32_t blk)
{
    return (uint8_t *)eng->pool_base_ptr + (uint64_t)blk * BLOCK_SIZE;
}

static void copy_blk(uint8_t *restrict dst, const uint8_t *restrict src)
{
    memcpy(dst, src, BLOCK_SIZE);
}

static Sequence *enroll(LLMEngine *eng, int32_t id, int32_t kv, int32_t **root)
{
    Sequence *s = malloc(sizeof *s);
    if (s == NULL)
        return NULL;
    struct list_node *head = &eng->active_seqs;
    s->seq_id = id;
    s->kv_count = kv;
    s->block_table = root;
    s->node.prev = head->prev;
    s->node.next = head;
    head->prev->next = &s->node;
    head->prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof *eng);
    if (eng == NULL)
        return NULL;
    const size_t blocks = pool_size / BLOCK_SIZE;
    eng->ref_count = calloc(blocks, sizeof(int32_t));
    if (eng->ref_count == NULL) {
        free(eng);
        return NULL;
    }
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int32_t)blocks;
    eng->free_local_blocks = (int32_t)blocks;
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || get_seq(engine, seq_id) != NULL)
        return NULL;
    const int64_t required = ((int64_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > INT64_C(256) || required > engine->free_local_blocks)
        return NULL;

    int32_t **root = new_root();
    if (root == NULL)
        return NULL;
    for (int64_t first = 0; first < required; first += L2_PT_SIZE) {
        if ((root[first / L2_PT_SIZE] = new_leaf()) == NULL) {
            drop_root(root);
            return NULL;
        }
    }
    Sequence *s = enroll(engine, seq_id, initial_kv_len, root);
    if (s == NULL) {
        drop_root(root);
        return NULL;
    }
    for (int64_t n = 0; n < required; n++)
        root[n / L2_PT_SIZE][n % L2_PT_SIZE] = reserve(engine);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = get_seq(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (size_t k = 0; k < L1_PT_SIZE; k++)
        if (s->block_table[k] != NULL)
            for (int32_t *it = s->block_table[k]; it < s->block_table[k] + L2_PT_SIZE; it++)
                if (*it != -1)
                    unref(engine, *it);
    drop_root(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    const Sequence *p = get_seq(engine, parent_seq_id);
    if (p == NULL || get_seq(engine, new_seq_id) != NULL)
        return NULL;
    int32_t **root = new_root();
    if (root == NULL)
        return NULL;
    for (size_t k = 0; k < L1_PT_SIZE; k++) {
        if (p->block_table[k] == NULL)
            continue;
        if ((root[k] = new_leaf()) == NULL) {
            drop_root(root);
            return NULL;
        }
        memcpy(root[k], p->block_table[k], L2_PT_SIZE * sizeof(int32_t));
    }
    Sequence *c = enroll(engine, new_seq_id, p->kv_count, root);
    if (c == NULL) {
        drop_root(root);
        return NULL;
    }
    for (size_t k = 0; k < L1_PT_SIZE; k++)
        for (size_t l = 0; root[k] != NULL && l < L2_PT_SIZE; l++)
            if (root[k][l] != -1)
                engine->ref_count[root[k][l]] += 1;
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = get_seq(engine, seq_id);
    if (s == NULL)
        return -1;
    const int32_t logical_idx = s->kv_count / KV_PER_BLOCK;
    const int32_t offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    const int32_t hi = logical_idx / L2_PT_SIZE, lo = logical_idx % L2_PT_SIZE;
    int32_t *leaf = s->block_table[hi];
    const int32_t old = leaf != NULL ? leaf[lo] : -1;
    const int shared = old != -1 && engine->ref_count[old] > 1;

    if (old == -1 || shared) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (leaf == NULL) {
            leaf = new_leaf();
            if (leaf == NULL)
                return -1;
            s->block_table[hi] = leaf;
        }
        leaf[lo] = reserve(engine);
        if (shared) {
            copy_blk(blk_ptr(engine, leaf[lo]), blk_ptr(engine, old));
            unref(engine, old);
        }
    }
    int32_t *slot = (int32_t *)blk_ptr(engine, leaf[lo]) + offset;
    *slot = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        Sequence *s = seq_at(n);
        n = n->next;
        drop_root(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

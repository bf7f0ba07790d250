/* STYLE: a classify() function returning an enum, switch with fallthrough comments, xmalloc-like wrappers with kinds */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum need { NEED_TABLE_AND_PAGE, NEED_PAGE, NEED_COPY, NEED_NOTHING };

static Sequence *S(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *seq_get(LLMEngine *eng, int id)
{
    struct list_node *n;

    for (n = eng->active_seqs.next; n != &eng->active_seqs; n = n->next)
        if (S(n)->seq_id == id)
            return S(n);
    return NULL;
}

static enum need classify(const LLMEngine *eng, const Sequence *seq, int idx)
{
    const int *l2 = seq->block_table[idx / L2_PT_SIZE];

    if (l2 == NULL)
        return NEED_TABLE_AND_PAGE;
    if (l2[idx % L2_PT_SIZE] == -1)
        return NEED_PAGE;
    return eng->ref_count[l2[idx % L2_PT_SIZE]] > 1 ? NEED_COPY : NEED_NOTHING;
}

static int page_alloc(LLMEngine *eng)
{
    int i;

    for (i = 0; i < eng->total_local_blocks; i++) {
        if (eng->ref_count[i])
            continue;
        eng->ref_count[i] = 1;
        eng->free_local_blocks--;
        return i;
    }
    return -1;
}

static int *table_alloc(void)
{
    int i, *t = malloc(sizeof(int) * L2_PT_SIZE);

    for (i = 0; t != NULL && i < L2_PT_SIZE; i++)
        t[i] = -1;
    return t;
}

static Sequence *seq_alloc(int id, int kv)
{
    int i;
    Sequence *seq = malloc(sizeof(Sequence));

    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    seq->seq_id = id;
    seq->kv_count = kv;
    return seq;
}

static void seq_put(LLMEngine *eng, Sequence *seq)
{
    int i, j;

    for (i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (j = 0; j < L2_PT_SIZE; j++) {
            switch (seq->block_table[i][j]) {
            case -1:
                break;
            default:
                if (--eng->ref_count[seq->block_table[i][j]] == 0)
                    eng->free_local_blocks++;
            }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static void seq_list_add(LLMEngine *eng, Sequence *seq)
{
    seq->node.prev = eng->active_seqs.prev;
    seq->node.next = &eng->active_seqs;
    eng->active_seqs.prev->next = &seq->node;
    eng->active_seqs.prev = &seq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    eng = malloc(sizeof(LLMEngine));
    if (eng == NULL)
        return NULL;
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->free_local_blocks = eng->total_local_blocks;
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
    if (eng->ref_count != NULL)
        return eng;
    free(eng);
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *seq;
    int need, idx, *l2;

    if (initial_kv_len <= 0 || seq_get(engine, seq_id) != NULL)
        return NULL;
    need = (initial_kv_len - 1) / KV_PER_BLOCK + 1;
    if (need > L1_PT_SIZE * L2_PT_SIZE || need > engine->free_local_blocks)
        return NULL;
    if ((seq = seq_alloc(seq_id, initial_kv_len)) == NULL)
        return NULL;
    for (idx = 0; idx < need; idx++) {
        switch (classify(engine, seq, idx)) {
        case NEED_TABLE_AND_PAGE:
            l2 = table_alloc();
            if (l2 == NULL) {
                seq_put(engine, seq);
                return NULL;
            }
            seq->block_table[idx / L2_PT_SIZE] = l2;
            /* fall through */
        default:
            seq->block_table[idx / L2_PT_SIZE][idx % L2_PT_SIZE] = page_alloc(engine);
        }
    }
    seq_list_add(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = seq_get(engine, seq_id);

    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    seq_put(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = seq_get(engine, parent_seq_id), *child;
    int i, j;

    if (parent == NULL || seq_get(engine, new_seq_id) != NULL)
        return NULL;
    if ((child = seq_alloc(new_seq_id, parent->kv_count)) == NULL)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        if ((child->block_table[i] = table_alloc()) == NULL) {
            seq_put(engine, child);
            return NULL;
        }
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (parent->block_table[i][j] == -1)
                continue;
            child->block_table[i][j] = parent->block_table[i][j];
            engine->ref_count[child->block_table[i][j]]++;
        }
    }
    seq_list_add(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = seq_get(engine, seq_id);
    int idx, old, *l2;
    enum need need;
    unsigned char *pool = engine->pool_base_ptr;

    if (seq == NULL)
        return -1;
    idx = seq->kv_count / KV_PER_BLOCK;
    if (idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    need = classify(engine, seq, idx);
    if (need != NEED_NOTHING && engine->free_local_blocks == 0)
        return -1;

    switch (need) {
    case NEED_TABLE_AND_PAGE:
        if ((l2 = table_alloc()) == NULL)
            return -1;
        seq->block_table[idx / L2_PT_SIZE] = l2;
        /* fall through */
    case NEED_PAGE:
        seq->block_table[idx / L2_PT_SIZE][idx % L2_PT_SIZE] = page_alloc(engine);
        break;
    case NEED_COPY:
        l2 = seq->block_table[idx / L2_PT_SIZE];
        old = l2[idx % L2_PT_SIZE];
        l2[idx % L2_PT_SIZE] = page_alloc(engine);
        memcpy(pool + (size_t)l2[idx % L2_PT_SIZE] * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[old]--;
        break;
    case NEED_NOTHING:
        break;
    }
    l2 = seq->block_table[idx / L2_PT_SIZE];
    ((int *)(pool + (size_t)l2[idx % L2_PT_SIZE] * BLOCK_SIZE))[seq->kv_count % KV_PER_BLOCK] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next, *next;

    while (n != &engine->active_seqs) {
        next = n->next;
        seq_put(engine, S(n));
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

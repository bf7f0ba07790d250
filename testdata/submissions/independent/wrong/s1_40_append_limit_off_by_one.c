/* MISTAKE: append tests logical_idx > 256, task 4, shows with the 4,097th record */
#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include "llm_memory.h"

#define MAX_TABLES L1_PT_SIZE

/* everything malloc'ed that a new sequence needs */
struct bundle {
    Sequence *seq;
    int **l1;
    int *l2[MAX_TABLES];
};

static void bundle_discard(struct bundle *b)
{
    for (size_t i = 0; i < MAX_TABLES; i++)
        free(b->l2[i]);
    free(b->l1);
    free(b->seq);
}

static bool bundle_fetch(struct bundle *b, const bool want[MAX_TABLES])
{
    *b = (struct bundle){0};
    bool ok = true;
    ok = ok && (b->seq = malloc(sizeof *b->seq)) != NULL;
    ok = ok && (b->l1 = malloc(L1_PT_SIZE * sizeof *b->l1)) != NULL;
    for (size_t i = 0; i < MAX_TABLES && ok; i++)
        if (want[i])
            ok = (b->l2[i] = malloc(L2_PT_SIZE * sizeof *b->l2[i])) != NULL;
    if (!ok)
        bundle_discard(b);
    return ok;
}

static Sequence *bundle_assemble(struct bundle *b, int id, int kv)
{
    for (size_t i = 0; i < MAX_TABLES; i++) {
        b->l1[i] = b->l2[i];
        if (b->l2[i] != NULL)
            for (size_t j = 0; j < L2_PT_SIZE; j++)
                b->l2[i][j] = -1;
    }
    b->seq->block_table = b->l1;
    b->seq->seq_id = id;
    b->seq->kv_count = kv;
    return b->seq;
}

static Sequence *as_seq(struct list_node *n)
{
    return (Sequence *)(void *)((unsigned char *)n - offsetof(Sequence, node));
}

static bool find(LLMEngine *eng, int id, Sequence **out)
{
    for (struct list_node *it = eng->active_seqs.next; it != &eng->active_seqs; it = it->next) {
        if (as_seq(it)->seq_id == id) {
            *out = as_seq(it);
            return true;
        }
    }
    return false;
}

/* the n lowest free blocks, in order */
static int pick(const LLMEngine *eng, int n, int out[])
{
    int got = 0;
    for (int i = 0; i < eng->total_local_blocks && got < n; i++)
        if (eng->ref_count[i] == 0)
            out[got++] = i;
    return got;
}

static void publish(LLMEngine *eng, Sequence *s)
{
    struct list_node *tail = eng->active_seqs.prev;
    s->node.prev = tail;
    s->node.next = &eng->active_seqs;
    tail->next = &s->node;
    eng->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    size_t blocks = pool_size / BLOCK_SIZE;
    LLMEngine *eng = malloc(sizeof *eng);
    int *refs = eng ? calloc(blocks, sizeof *refs) : NULL;
    if (refs == NULL) {
        free(eng);
        return NULL;
    }
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = eng->free_local_blocks = (int)blocks;
    eng->ref_count = refs;
    eng->active_seqs = (struct list_node){.prev = &eng->active_seqs, .next = &eng->active_seqs};
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *dup;
    if (initial_kv_len <= 0 || find(engine, seq_id, &dup))
        return NULL;
    size_t need = ((size_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > (size_t)L1_PT_SIZE * L2_PT_SIZE || (int)need > engine->free_local_blocks)
        return NULL;

    /* phase A: gather */
    int ids[L1_PT_SIZE * L2_PT_SIZE];
    if (pick(engine, (int)need, ids) != (int)need)
        return NULL;
    bool want[MAX_TABLES];
    for (size_t i = 0; i < MAX_TABLES; i++)
        want[i] = i * L2_PT_SIZE < need;
    struct bundle b;
    if (!bundle_fetch(&b, want))
        return NULL;

    /* phase B: commit, cannot fail */
    Sequence *s = bundle_assemble(&b, seq_id, initial_kv_len);
    for (size_t k = 0; k < need; k++) {
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = ids[k];
        assert(engine->ref_count[ids[k]] == 0);
        engine->ref_count[ids[k]] = 1;
    }
    engine->free_local_blocks -= (int)need;
    publish(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    if (!find(engine, seq_id, &s))
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (size_t i = 0; i < L1_PT_SIZE; i++) {
        for (size_t j = 0; s->block_table[i] != NULL && j < L2_PT_SIZE; j++) {
            int id = s->block_table[i][j];
            if (id != -1 && --engine->ref_count[id] == 0)
                engine->free_local_blocks++;
        }
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent, *dup;
    if (!find(engine, parent_seq_id, &parent) || find(engine, new_seq_id, &dup))
        return NULL;
    bool want[MAX_TABLES];
    for (size_t i = 0; i < MAX_TABLES; i++)
        want[i] = parent->block_table[i] != NULL;
    struct bundle b;
    if (!bundle_fetch(&b, want))
        return NULL;
    Sequence *s = bundle_assemble(&b, new_seq_id, parent->kv_count);
    for (size_t i = 0; i < MAX_TABLES; i++) {
        if (!want[i])
            continue;
        for (size_t j = 0; j < L2_PT_SIZE; j++) {
            int id = parent->block_table[i][j];
            s->block_table[i][j] = id;
            if (id != -1)
                engine->ref_count[id]++;
        }
    }
    publish(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    if (!find(engine, seq_id, &s))
        return -1;
    const int logical_idx = s->kv_count / KV_PER_BLOCK;
    const int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx > L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    const int hi = logical_idx / L2_PT_SIZE, lo = logical_idx % L2_PT_SIZE;

    int *table = s->block_table[hi];
    int old = table == NULL ? -1 : table[lo];
    int use = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        /* gather */
        if (engine->free_local_blocks == 0 || pick(engine, 1, &use) != 1)
            return -1;
        if (table == NULL) {
            table = malloc(L2_PT_SIZE * sizeof *table);
            if (table == NULL)
                return -1;
            for (int j = 0; j < L2_PT_SIZE; j++)
                table[j] = -1;
        }
        /* commit */
        s->block_table[hi] = table;
        engine->ref_count[use] = 1;
        engine->free_local_blocks--;
        if (old != -1) {
            unsigned char *pool = engine->pool_base_ptr;
            memcpy(pool + (size_t)use * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        table[lo] = use;
    }
    int *block = (int *)((unsigned char *)engine->pool_base_ptr + (size_t)use * BLOCK_SIZE);
    block[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    for (struct list_node *it = engine->active_seqs.next; it != &engine->active_seqs;) {
        Sequence *s = as_seq(it);
        it = it->next;
        for (size_t i = 0; i < L1_PT_SIZE; i++)
            free(s->block_table[i]);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

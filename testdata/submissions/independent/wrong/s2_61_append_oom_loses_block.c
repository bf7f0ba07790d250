/* MISTAKE: the block is taken before the table is allocated and lost when that fails, task 4, shows only with a failing malloc at a table boundary */
#include "llm_memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct tx {
    void *mem[2 + L1_PT_SIZE];
    int n;
    bool broken;
};

static void tx_begin(struct tx *t) { t->n = 0; t->broken = false; }

static void *tx_malloc(struct tx *t, size_t bytes)
{
    void *p = t->broken ? NULL : malloc(bytes);
    if (p == NULL)
        t->broken = true;
    else
        t->mem[t->n++] = p;
    return p;
}

/* true: everything is there and belongs to the caller now; false: everything is freed */
static bool tx_commit(struct tx *t)
{
    if (!t->broken)
        return true;
    while (t->n > 0)
        free(t->mem[--t->n]);
    return false;
}

static int *tx_table(struct tx *t)
{
    int *table = tx_malloc(t, L2_PT_SIZE * sizeof(int));
    for (int i = 0; table != NULL && i < L2_PT_SIZE; i++)
        table[i] = -1;
    return table;
}

static Sequence *tx_sequence(struct tx *t)
{
    Sequence *seq = tx_malloc(t, sizeof(Sequence));
    int **root = tx_malloc(t, L1_PT_SIZE * sizeof(int *));
    if (root == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++)
        root[i] = NULL;
    seq->block_table = root;
    return seq;
}

static Sequence *to_sequence(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *lookup(LLMEngine *engine, int id)
{
    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next)
        if (to_sequence(n)->seq_id == id)
            return to_sequence(n);
    return NULL;
}

static int block_take(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static void enlist(LLMEngine *engine, Sequence *seq, int id, int count)
{
    struct list_node *const head = &engine->active_seqs;
    seq->seq_id = id;
    seq->kv_count = count;
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
}

static void free_pieces(Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(seq->block_table[i]);
    free(seq->block_table);
    free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    if (engine == NULL)
        return NULL;
    const size_t total = pool_size / BLOCK_SIZE;
    engine->ref_count = calloc(total, sizeof *engine->ref_count);
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->total_local_blocks = (int)total;
    engine->free_local_blocks = (int)total;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.next = &engine->active_seqs;
    engine->active_seqs.prev = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || lookup(engine, seq_id) != NULL)
        return NULL;
    const int required = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK ? 1 : 0);
    if (required > L1_PT_SIZE * L2_PT_SIZE || required > engine->free_local_blocks)
        return NULL;

    struct tx t;
    tx_begin(&t);
    Sequence *seq = tx_sequence(&t);
    for (int i = 0; seq != NULL && i * L2_PT_SIZE < required; i++)
        seq->block_table[i] = tx_table(&t);
    if (!tx_commit(&t))
        return NULL;

    for (int k = 0; k < required; k++)
        seq->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = block_take(engine);
    enlist(engine, seq, seq_id, initial_kv_len);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = lookup(engine, seq_id);
    if (seq == NULL)
        return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (seq->block_table[i][j] == -1)
                continue;
            int *refs = &engine->ref_count[seq->block_table[i][j]];
            *refs -= 1;
            if (*refs == 0)
                engine->free_local_blocks++;
        }
    }
    free_pieces(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = lookup(engine, parent_seq_id);
    if (parent == NULL || lookup(engine, new_seq_id) != NULL)
        return NULL;

    struct tx t;
    tx_begin(&t);
    Sequence *child = tx_sequence(&t);
    for (int i = 0; child != NULL && i < L1_PT_SIZE; i++)
        if (parent->block_table[i] != NULL)
            child->block_table[i] = tx_table(&t);
    if (!tx_commit(&t))
        return NULL;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            const int b = parent->block_table[i][j];
            child->block_table[i][j] = b;
            if (b != -1)
                engine->ref_count[b]++;
        }
    }
    enlist(engine, child, new_seq_id, parent->kv_count);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *seq = lookup(engine, seq_id);
    if (seq == NULL)
        return -1;
    const int logical_idx = seq->kv_count / KV_PER_BLOCK, offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int *table = seq->block_table[logical_idx / L2_PT_SIZE];
    const int j = logical_idx % L2_PT_SIZE;
    const int old = table == NULL ? -1 : table[j];

    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        const int fresh = block_take(engine);
        if (table == NULL) {
            struct tx t;
            tx_begin(&t);
            table = tx_table(&t);
            if (!tx_commit(&t))
                return -1;
            seq->block_table[logical_idx / L2_PT_SIZE] = table;
        }
        table[j] = fresh;
        if (old != -1) {
            char *pool = engine->pool_base_ptr;
            memcpy(pool + (size_t)table[j] * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    int *kv = (int *)((char *)engine->pool_base_ptr + (size_t)table[j] * BLOCK_SIZE);
    kv[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs;) {
        Sequence *seq = to_sequence(n);
        n = n->next;
        free_pieces(seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* MISTAKE: blocks that become free are cleared with memset, task 2, shows in the pool bytes after free_sequence */
#include "llm_memory.h"
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    jmp_buf env;
    LLMEngine *eng;
    Sequence *seq;
} Try;

static Sequence *holder(struct list_node *n) { return (Sequence *)((char *)n - offsetof(Sequence, node)); }

static Sequence *find(LLMEngine *eng, int id)
{
    for (struct list_node *n = eng->active_seqs.next; n != &eng->active_seqs; n = n->next)
        if (holder(n)->seq_id == id)
            return holder(n);
    return NULL;
}

static void discard(LLMEngine *eng, Sequence *seq)
{
    if (seq == NULL)
        return;
    for (int i = 0; seq->block_table != NULL && i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (seq->block_table[i][j] != -1 && --eng->ref_count[seq->block_table[i][j]] == 0) {
                memset((char *)eng->pool_base_ptr + (size_t)seq->block_table[i][j] * BLOCK_SIZE, 0, BLOCK_SIZE);
                eng->free_local_blocks++;
            }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static void *must(Try *t, size_t bytes)
{
    void *p = malloc(bytes);
    if (p == NULL)
        longjmp(t->env, 1);
    return p;
}

static void must_table(Try *t, int i)
{
    int *tab = must(t, L2_PT_SIZE * sizeof *tab);
    for (int j = 0; j < L2_PT_SIZE; j++)
        tab[j] = -1;
    t->seq->block_table[i] = tab;
}

static void must_seq(Try *t, int id, int kv)
{
    Sequence *s = must(t, sizeof *s);
    s->block_table = NULL;
    t->seq = s;
    int **root = must(t, L1_PT_SIZE * sizeof *root);
    for (int i = 0; i < L1_PT_SIZE; i++)
        root[i] = NULL;
    s->block_table = root;
    s->seq_id = id;
    s->kv_count = kv;
}

static int take_block(LLMEngine *eng)
{
    for (int i = 0; i < eng->total_local_blocks; i++)
        if (eng->ref_count[i] == 0) {
            eng->ref_count[i] = 1;
            eng->free_local_blocks--;
            return i;
        }
    return -1;
}

static Sequence *finish(Try *t)
{
    Sequence *s = t->seq;
    s->node.prev = t->eng->active_seqs.prev;
    s->node.next = &t->eng->active_seqs;
    s->node.prev->next = &s->node;
    t->eng->active_seqs.prev = &s->node;
    return s;
}

static void build_new(Try *t, int id, int kv)
{
    must_seq(t, id, kv);
    int n = (kv + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    for (int k = 0; k < n; k++) {
        if (k % L2_PT_SIZE == 0)
            must_table(t, k / L2_PT_SIZE);
        t->seq->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = take_block(t->eng);
    }
}

static void build_copy(Try *t, int id, const Sequence *from)
{
    must_seq(t, id, from->kv_count);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (from->block_table[i] == NULL)
            continue;
        must_table(t, i);
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (from->block_table[i][j] != -1) {
                t->seq->block_table[i][j] = from->block_table[i][j];
                t->eng->ref_count[from->block_table[i][j]]++;
            }
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof *eng);
    if (eng == NULL)
        return NULL;
    eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->free_local_blocks = eng->total_local_blocks;
    eng->pool_base_ptr = pool_addr;
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
    if (eng->ref_count == NULL) {
        free(eng);
        return NULL;
    }
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || find(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > 4096 || (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK > engine->free_local_blocks)
        return NULL;
    Try t = { .eng = engine, .seq = NULL };
    Try *volatile tp = &t;
    if (setjmp(t.env) != 0) {
        discard(tp->eng, tp->seq);
        return NULL;
    }
    build_new(tp, seq_id, initial_kv_len);
    return finish(tp);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    discard(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = find(engine, parent_seq_id);
    if (parent == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    Try t = { .eng = engine, .seq = NULL };
    Try *volatile tp = &t;
    if (setjmp(t.env) != 0) {
        discard(tp->eng, tp->seq);
        return NULL;
    }
    build_copy(tp, new_seq_id, parent);
    return finish(tp);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (s == NULL)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    if (logical_idx >= 256)
        return -1;
    int i = logical_idx / L2_PT_SIZE, j = logical_idx % L2_PT_SIZE;
    int old = s->block_table[i] ? s->block_table[i][j] : -1, use = old;
    char *pool = engine->pool_base_ptr;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (s->block_table[i] == NULL) {
            int *tab = malloc(L2_PT_SIZE * sizeof *tab);
            if (tab == NULL)
                return -1;
            for (int k = 0; k < L2_PT_SIZE; k++)
                tab[k] = -1;
            s->block_table[i] = tab;
        }
        use = take_block(engine);
        if (old != -1) {
            memcpy(pool + (size_t)use * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        s->block_table[i][j] = use;
    }
    int *words = (int *)(pool + (size_t)use * BLOCK_SIZE);
    words[s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    for (struct list_node *n = engine->active_seqs.next, *next; n != &engine->active_seqs; n = next) {
        next = n->next;
        discard(engine, holder(n));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* STYLE: validation in own functions named phase1/phase2/phase3 as in the handout, execution in exec_* */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stddef.h>

static Sequence *entry(struct list_node *n)
{
    size_t off = offsetof(Sequence, node);
    return (Sequence *)((char *)n - off);
}

static Sequence *get_by_id(LLMEngine *eng, int id)
{
    struct list_node *n;
    for (n = eng->active_seqs.next; n != &eng->active_seqs; n = n->next) {
        if (entry(n)->seq_id == id)
            return entry(n);
    }
    return NULL;
}

/* ---------- phases ---------- */

static bool create_phase1(int len) { return len > 0; }
static bool create_phase2(LLMEngine *eng, int id) { return get_by_id(eng, id) == NULL; }
static bool create_phase3(LLMEngine *eng, int len, int *required)
{
    *required = (int)(((size_t)len + KV_PER_BLOCK - 1) / KV_PER_BLOCK);
    return *required <= 256 && *required <= eng->free_local_blocks;
}

static bool fork_phase2(LLMEngine *eng, int parent, int child, Sequence **out)
{
    *out = get_by_id(eng, parent);
    return *out != NULL && get_by_id(eng, child) == NULL;
}

static bool append_phase2(LLMEngine *eng, int id, Sequence **out)
{
    *out = get_by_id(eng, id);
    return *out != NULL && (*out)->kv_count / KV_PER_BLOCK < 256;
}

static bool append_phase3(LLMEngine *eng, Sequence *s, int *old)
{
    int lb = s->kv_count / KV_PER_BLOCK;
    int *t = s->block_table[lb / L2_PT_SIZE];
    *old = t == NULL ? -1 : t[lb % L2_PT_SIZE];
    if (*old != -1 && eng->ref_count[*old] == 1)
        return true;
    return eng->free_local_blocks != 0;
}

/* ---------- execution ---------- */

static int exec_take(LLMEngine *eng)
{
    for (int i = 0; i < eng->total_local_blocks; i++) {
        if (eng->ref_count[i] == 0) {
            eng->ref_count[i] = 1;
            eng->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static void exec_drop(LLMEngine *eng, int b)
{
    if (--eng->ref_count[b] == 0)
        eng->free_local_blocks++;
}

static bool exec_table(Sequence *s, int i)
{
    if (s->block_table[i] != NULL)
        return true;
    s->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
    if (s->block_table[i] == NULL)
        return false;
    for (int j = 0; j < L2_PT_SIZE; j++)
        s->block_table[i][j] = -1;
    return true;
}

static Sequence *exec_seq(int id, int kv)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (s == NULL)
        return NULL;
    s->seq_id = id;
    s->kv_count = kv;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

static void exec_destroy(LLMEngine *eng, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (s->block_table[i][j] != -1)
                exec_drop(eng, s->block_table[i][j]);
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

static void exec_link(LLMEngine *eng, Sequence *s)
{
    struct list_node *h = &eng->active_seqs;
    s->node.prev = h->prev;
    s->node.next = h;
    h->prev->next = &s->node;
    h->prev = &s->node;
}

static void exec_write(LLMEngine *eng, int block, int offset, int value)
{
    char *p = (char *)eng->pool_base_ptr + (size_t)block * BLOCK_SIZE;
    ((int *)p)[offset] = value;
}

static void exec_copy(LLMEngine *eng, int to, int from)
{
    char *p = eng->pool_base_ptr;
    memcpy(p + (size_t)to * BLOCK_SIZE, p + (size_t)from * BLOCK_SIZE, BLOCK_SIZE);
}

/* ---------- API ---------- */

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof(LLMEngine));
    if (eng == NULL)
        return NULL;
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->free_local_blocks = eng->total_local_blocks;
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
    if (eng->ref_count == NULL) {
        free(eng);
        return NULL;
    }
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    int required;
    if (!create_phase1(initial_kv_len))
        return NULL;
    if (!create_phase2(engine, seq_id))
        return NULL;
    if (!create_phase3(engine, initial_kv_len, &required))
        return NULL;

    Sequence *s = exec_seq(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    for (int k = 0; k < required; k++) {
        if (!exec_table(s, k / L2_PT_SIZE)) {
            exec_destroy(engine, s);
            return NULL;
        }
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = exec_take(engine);
    }
    exec_link(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = get_by_id(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    exec_destroy(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent;
    if (!fork_phase2(engine, parent_seq_id, new_seq_id, &parent))
        return NULL;
    Sequence *child = exec_seq(new_seq_id, parent->kv_count);
    if (child == NULL)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        if (!exec_table(child, i)) {
            exec_destroy(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            child->block_table[i][j] = parent->block_table[i][j];
            if (child->block_table[i][j] != -1)
                engine->ref_count[child->block_table[i][j]]++;
        }
    }
    exec_link(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    int old;
    if (!append_phase2(engine, seq_id, &s))
        return -1;
    if (!append_phase3(engine, s, &old))
        return -1;
    int lb = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (!exec_table(s, lb / L2_PT_SIZE))
        return -1;
    int *slot = &s->block_table[lb / L2_PT_SIZE][lb % L2_PT_SIZE];
    if (old == -1) {
        *slot = exec_take(engine);
    } else if (engine->ref_count[old] > 1) {
        *slot = exec_take(engine);
        exec_copy(engine, *slot, old);
        exec_drop(engine, old);
    }
    exec_write(engine, *slot, off, kv_data);
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        Sequence *s = entry(n);
        n = n->next;
        exec_destroy(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* MISTAKE: append does not check the malloc of the table, task 4, shows only with a failing malloc at a table boundary */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define LOGICAL (L1_PT_SIZE * L2_PT_SIZE)
#define ENTRY(s, k) ((s)->block_table[(k) / L2_PT_SIZE][(k) % L2_PT_SIZE])
#define HAS_ROW(s, k) ((s)->block_table[(k) / L2_PT_SIZE] != NULL)
#define BLOCK_OF(s, k) (HAS_ROW(s, k) ? ENTRY(s, k) : -1)
#define WITH_BLOCKS(s, b) \
    for (int k_ = 0, b; k_ < LOGICAL; k_++) if ((b = BLOCK_OF(s, k_)) != -1)
#define WITH_SEQS(e, n) \
    for (struct list_node *n = (e)->active_seqs.next, *n##_next = n->next; \
         n != &(e)->active_seqs; n = n##_next, n##_next = n->next)
#define AS_SEQ(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))

static Sequence *find(LLMEngine *e, int id)
{
    WITH_SEQS(e, n)
        if (AS_SEQ(n)->seq_id == id)
            return AS_SEQ(n);
    return NULL;
}

static int take(LLMEngine *e)
{
    for (int i = 0; i < e->total_local_blocks; i++)
        if (e->ref_count[i] == 0) {
            e->ref_count[i] = 1;
            e->free_local_blocks -= 1;
            return i;
        }
    return -1;
}

static int add_row(Sequence *s, int k)
{
    int *row = malloc(sizeof(int) * L2_PT_SIZE);
    if (!row)
        return 0;
    memset(row, 255, sizeof(int) * L2_PT_SIZE);
    s->block_table[k / L2_PT_SIZE] = row;
    return 1;
}

static void forget(Sequence *s)
{
    for (int k = 0; k < LOGICAL; k += L2_PT_SIZE)
        free(s->block_table[k / L2_PT_SIZE]);
    free(s->block_table);
    free(s);
}

static Sequence *start(int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (s && !(s->block_table = malloc(sizeof(int *) * L1_PT_SIZE))) {
        free(s);
        s = NULL;
    }
    if (s) {
        for (int i = 0; i < L1_PT_SIZE; i++)
            s->block_table[i] = NULL;
        s->seq_id = id;
        s->kv_count = kv;
    }
    return s;
}

static void append_node(struct list_node *head, struct list_node *node)
{
    node->next = head;
    node->prev = head->prev;
    head->prev->next = node;
    head->prev = node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || find(engine, seq_id) || initial_kv_len > LOGICAL * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    Sequence *s = start(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (int k = 0; k < need; k += L2_PT_SIZE)
        if (!add_row(s, k)) {
            forget(s);
            return NULL;
        }
    for (int k = 0; k < need; k++)
        ENTRY(s, k) = take(engine);
    append_node(&engine->active_seqs, &s->node);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;
    WITH_BLOCKS(s, b) {
        engine->ref_count[b]--;
        if (engine->ref_count[b] == 0)
            engine->free_local_blocks++;
    }
    forget(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;
    Sequence *p = find(engine, parent_seq_id);
    if (!p || find(engine, new_seq_id))
        return NULL;
    Sequence *s = start(new_seq_id, p->kv_count);
    if (!s)
        return NULL;
    for (int k = 0; k < LOGICAL; k += L2_PT_SIZE)
        if (HAS_ROW(p, k) && !add_row(s, k)) {
            forget(s);
            return NULL;
        }
    WITH_BLOCKS(p, b) {
        ENTRY(s, k_) = b;
        engine->ref_count[b]++;
    }
    append_node(&engine->active_seqs, &s->node);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;
    Sequence *s = find(engine, seq_id);
    if (!s)
        return -1;
    int k = s->kv_count / KV_PER_BLOCK;
    if (k >= LOGICAL)
        return -1;
    int old = BLOCK_OF(s, k);
    int fresh = old == -1, shared = !fresh && engine->ref_count[old] > 1;
    char (*pool)[BLOCK_SIZE] = engine->pool_base_ptr;
    if (fresh || shared) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!HAS_ROW(s, k))
            add_row(s, k);
        ENTRY(s, k) = take(engine);
    }
    if (shared) {
        memcpy(pool[ENTRY(s, k)], pool[old], BLOCK_SIZE);
        engine->ref_count[old]--;
    }
    ((int *)(void *)pool[ENTRY(s, k)])[s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;
    WITH_SEQS(engine, n)
        forget(AS_SEQ(n));
    free(engine->ref_count);
    free(engine);
    return 0;
}

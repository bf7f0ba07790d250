/* MISTAKE: the required blocks are computed in 16 bits, task 2, shows with lengths above 65,535 (65,537 is accepted) */
#include "llm_memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int uint;

static Sequence *embed(struct list_node *ln) { return (Sequence *)((char *)ln - offsetof(Sequence, node)); }

static Sequence *pick(LLMEngine *en, int id)
{
    for (struct list_node *ln = en->active_seqs.next; ln != &en->active_seqs; ln = ln->next) {
        if (embed(ln)->seq_id != id)
            continue;
        return embed(ln);
    }
    return NULL;
}

static bool unknown(LLMEngine *en, int id) { return pick(en, id) == NULL; }

static uint blocks_for(int records) { return ((unsigned short)records + KV_PER_BLOCK - 1u) / KV_PER_BLOCK; }

static bool cannot_hold(const LLMEngine *en, int records)
{
    if (records <= 0)
        return true;
    uint b = blocks_for(records);
    return b > 256u || en->free_local_blocks < (int)b;
}

static bool lacks_table(const Sequence *s, uint lb) { return s->block_table[lb / L2_PT_SIZE] == NULL; }

static bool lacks_block(const Sequence *s, uint lb)
{
    return lacks_table(s, lb) || s->block_table[lb / L2_PT_SIZE][lb % L2_PT_SIZE] == -1;
}

static int block_no(const Sequence *s, uint lb) { return s->block_table[lb / L2_PT_SIZE][lb % L2_PT_SIZE]; }

static bool not_exclusive(const LLMEngine *en, const Sequence *s, uint lb)
{
    return lacks_block(s, lb) || en->ref_count[block_no(s, lb)] != 1;
}

/* false if there was no memory */
static bool give_table(Sequence *s, uint lb)
{
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    if (!t)
        return false;
    for (uint e = 0; e < L2_PT_SIZE; e++)
        t[e] = -1;
    s->block_table[lb / L2_PT_SIZE] = t;
    return true;
}

static int give_block(LLMEngine *en, Sequence *s, uint lb)
{
    int no = -1;
    for (int b = 0; b < en->total_local_blocks; b++) {
        if (en->ref_count[b] != 0)
            continue;
        no = b;
        break;
    }
    if (no == -1)
        return -1;
    en->ref_count[no] = 1;
    en->free_local_blocks -= 1;
    s->block_table[lb / L2_PT_SIZE][lb % L2_PT_SIZE] = no;
    return no;
}

static void lose_ref(LLMEngine *en, int no)
{
    en->ref_count[no] -= 1;
    if (en->ref_count[no] != 0)
        return;
    en->free_local_blocks += 1;
}

static void undo_seq(LLMEngine *en, Sequence *s)
{
    for (uint lb = 0; lb < 256u; lb++) {
        if (lacks_block(s, lb))
            continue;
        lose_ref(en, block_no(s, lb));
    }
    for (uint i = 0; i < L1_PT_SIZE; i++)
        free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static Sequence *void_seq(int id, int kv)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (!s)
        return NULL;
    s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!s->block_table) {
        free(s);
        return NULL;
    }
    for (uint i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static Sequence *to_back(LLMEngine *en, Sequence *s)
{
    s->node.prev = en->active_seqs.prev;
    s->node.next = &en->active_seqs;
    en->active_seqs.prev->next = &s->node;
    en->active_seqs.prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *en = malloc(sizeof(LLMEngine));
    if (!en)
        return NULL;
    en->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    en->ref_count = calloc((size_t)en->total_local_blocks, sizeof(int));
    if (!en->ref_count) {
        free(en);
        return NULL;
    }
    en->pool_base_ptr = pool_addr;
    en->free_local_blocks = en->total_local_blocks;
    en->active_seqs.next = en->active_seqs.prev = &en->active_seqs;
    return en;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (!unknown(engine, seq_id))
        return NULL;
    if (cannot_hold(engine, initial_kv_len))
        return NULL;
    Sequence *s = void_seq(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (uint lb = 0; lb < blocks_for(initial_kv_len); lb++) {
        if ((lacks_table(s, lb) && !give_table(s, lb)) || give_block(engine, s, lb) == -1) {
            undo_seq(engine, s);
            return NULL;
        }
    }
    return to_back(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    if (unknown(engine, seq_id))
        return -1;
    Sequence *s = pick(engine, seq_id);
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    undo_seq(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    if (unknown(engine, parent_seq_id))
        return NULL;
    if (!unknown(engine, new_seq_id))
        return NULL;
    Sequence *p = pick(engine, parent_seq_id);
    Sequence *c = void_seq(new_seq_id, p->kv_count);
    if (!c)
        return NULL;
    for (uint lb = 0; lb < 256u; lb++) {
        if (lacks_table(p, lb))
            continue;
        if (lacks_table(c, lb) && !give_table(c, lb)) {
            undo_seq(engine, c);
            return NULL;
        }
        if (lacks_block(p, lb))
            continue;
        c->block_table[lb / L2_PT_SIZE][lb % L2_PT_SIZE] = block_no(p, lb);
        engine->ref_count[block_no(p, lb)] += 1;
    }
    return to_back(engine, c);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    if (unknown(engine, seq_id))
        return -1;
    Sequence *s = pick(engine, seq_id);
    uint lb = (uint)s->kv_count / KV_PER_BLOCK;
    if (lb >= 256u)
        return -1;
    char *pool = engine->pool_base_ptr;
    if (not_exclusive(engine, s, lb)) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (lacks_table(s, lb) && !give_table(s, lb))
            return -1;
        int old = block_no(s, lb);
        int no = give_block(engine, s, lb);
        if (no == -1)
            return -1;
        if (old != -1) {
            memcpy(pool + (size_t)no * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            lose_ref(engine, old);
        }
    }
    int *cell = (int *)(pool + (size_t)block_no(s, lb) * BLOCK_SIZE);
    cell[(uint)s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *ln = engine->active_seqs.next;
    while (ln != &engine->active_seqs) {
        Sequence *s = embed(ln);
        ln = ln->next;
        undo_seq(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

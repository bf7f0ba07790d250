/* STYLE: macros for nearly everything */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define NODE2SEQ(p) ((Sequence *)((char *)(p) - offsetof(Sequence, node)))
#define HEAD(e) (&(e)->active_seqs)
#define EACH_NODE(e, p) for (struct list_node *p = HEAD(e)->next; p != HEAD(e); p = p->next)
#define EACH(i, n) for (int i = 0; i < (n); ++i)
#define BLOCK(e, b) ((char *)(e)->pool_base_ptr + (size_t)(b) * BLOCK_SIZE)
#define CEIL(a, b) (((a) + (b) - 1) / (b))
#define RET_IF(c, v) do { if (c) return (v); } while (0)
#define NIL (-1)
#define TABLE_BYTES (sizeof(int) * L2_PT_SIZE)
#define LIMIT (L1_PT_SIZE * L2_PT_SIZE)
#define FIND(e, id, var) \
    Sequence *var = NULL; \
    EACH_NODE(e, p_##var) { \
        if (NODE2SEQ(p_##var)->seq_id == (id)) { var = NODE2SEQ(p_##var); break; } \
    }
#define LINK_TAIL(e, s) do { \
    (s)->node.prev = HEAD(e)->prev; \
    (s)->node.next = HEAD(e); \
    HEAD(e)->prev->next = &(s)->node; \
    HEAD(e)->prev = &(s)->node; \
} while (0)
#define UNLINK(s) do { \
    (s)->node.prev->next = (s)->node.next; \
    (s)->node.next->prev = (s)->node.prev; \
} while (0)
#define FREE_TABLES(s) do { \
    EACH(z_, L1_PT_SIZE) free((s)->block_table[z_]); \
    free((s)->block_table); \
    free(s); \
} while (0)
#define NEW_SEQ(s) do { \
    RET_IF(!((s) = malloc(sizeof(Sequence))), NULL); \
    (s)->block_table = malloc(sizeof(int *) * L1_PT_SIZE); \
    if (!(s)->block_table) { free(s); return NULL; } \
    EACH(z_, L1_PT_SIZE) (s)->block_table[z_] = NULL; \
} while (0)
#define NEW_TABLE(t) do { \
    (t) = malloc(TABLE_BYTES); \
    if (t) memset((t), NIL, TABLE_BYTES); \
} while (0)
#define TAKE(e, out) do { \
    EACH(y_, (e)->total_local_blocks) \
        if ((e)->ref_count[y_] == 0) { (out) = y_; break; } \
    (e)->ref_count[out] = 1; \
    (e)->free_local_blocks -= 1; \
} while (0)
#define DROP(e, b) do { if (--(e)->ref_count[b] == 0) ++(e)->free_local_blocks; } while (0)

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    RET_IF(pool_addr == NULL || pool_size < BLOCK_SIZE, NULL);
    LLMEngine *e = malloc(sizeof *e);
    RET_IF(e == NULL, NULL);
    e->pool_base_ptr = pool_addr;
    e->free_local_blocks = e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    if (!e->ref_count) {
        free(e);
        return NULL;
    }
    HEAD(e)->prev = HEAD(e)->next = HEAD(e);
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    RET_IF(engine == NULL, NULL);
    RET_IF(initial_kv_len <= 0, NULL);
    FIND(engine, seq_id, old);
    RET_IF(old, NULL);
    RET_IF(initial_kv_len > LIMIT * KV_PER_BLOCK, NULL);
    int need = CEIL(initial_kv_len, KV_PER_BLOCK);
    RET_IF(need > engine->free_local_blocks, NULL);
    Sequence *s;
    NEW_SEQ(s);
    EACH(t, CEIL(need, L2_PT_SIZE)) {
        NEW_TABLE(s->block_table[t]);
        if (!s->block_table[t]) {
            FREE_TABLES(s);
            return NULL;
        }
    }
    EACH(k, need) {
        int b = NIL;
        TAKE(engine, b);
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
    }
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    LINK_TAIL(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    RET_IF(engine == NULL, -1);
    FIND(engine, seq_id, s);
    RET_IF(!s, -1);
    UNLINK(s);
    EACH(i, L1_PT_SIZE)
        if (s->block_table[i])
            EACH(j, L2_PT_SIZE)
                if (s->block_table[i][j] != NIL)
                    DROP(engine, s->block_table[i][j]);
    FREE_TABLES(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    RET_IF(engine == NULL, NULL);
    FIND(engine, parent_seq_id, p);
    RET_IF(!p, NULL);
    FIND(engine, new_seq_id, q);
    RET_IF(q, NULL);
    Sequence *s;
    NEW_SEQ(s);
    EACH(i, L1_PT_SIZE) {
        if (!p->block_table[i])
            continue;
        NEW_TABLE(s->block_table[i]);
        if (!s->block_table[i]) {
            FREE_TABLES(s);
            return NULL;
        }
        memcpy(s->block_table[i], p->block_table[i], TABLE_BYTES);
    }
    EACH(i, L1_PT_SIZE)
        if (s->block_table[i])
            EACH(j, L2_PT_SIZE)
                if (s->block_table[i][j] != NIL)
                    ++engine->ref_count[s->block_table[i][j]];
    s->kv_count = p->kv_count;
    s->seq_id = new_seq_id;
    LINK_TAIL(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    RET_IF(engine == NULL, -1);
    FIND(engine, seq_id, s);
    RET_IF(!s, -1);
    int li = s->kv_count / KV_PER_BLOCK;
    RET_IF(li >= LIMIT, -1);
    int l1 = li / L2_PT_SIZE, l2 = li % L2_PT_SIZE, off = s->kv_count % KV_PER_BLOCK;
    int old = s->block_table[l1] ? s->block_table[l1][l2] : NIL, now = old;
    if (old == NIL || engine->ref_count[old] > 1) {
        RET_IF(engine->free_local_blocks == 0, -1);
        if (!s->block_table[l1]) {
            NEW_TABLE(s->block_table[l1]);
            RET_IF(!s->block_table[l1], -1);
        }
        TAKE(engine, now);
        if (old != NIL) {
            memcpy(BLOCK(engine, now), BLOCK(engine, old), BLOCK_SIZE);
            DROP(engine, old);
        }
        s->block_table[l1][l2] = now;
    }
    ((int *)BLOCK(engine, now))[off] = kv_data;
    s->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    RET_IF(engine == NULL, -1);
    for (struct list_node *p = HEAD(engine)->next, *n; p != HEAD(engine); p = n) {
        Sequence *s = NODE2SEQ(p);
        n = p->next;
        FREE_TABLES(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/* MISTAKE: the dummy head's prev stays NULL, task 1, shows right after llm_init */
#include "llm_memory.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KV_SHIFT 4
#define KV_MASK 15u
#define L2_SHIFT 4
#define L2_MASK 15u
#define BLK_SHIFT 6

typedef uint8_t byte;

static Sequence *node2seq(struct list_node *n) { return (Sequence *)((byte *)n - offsetof(Sequence, node)); }

static Sequence *lookup(LLMEngine *e, int id) {
    for (struct list_node *n = e->active_seqs.next; n != &e->active_seqs; n = n->next)
        if (node2seq(n)->seq_id == id) return node2seq(n);
    return NULL;
}

static void unref_table(LLMEngine *e, int *t) {
    for (int *p = t, *end = t + L2_PT_SIZE; p != end; ++p) {
        if (*p == -1) continue;
        int *rc = e->ref_count + *p;
        if (--*rc == 0) ++e->free_local_blocks;
    }
    free(t);
}

static void wreck(LLMEngine *e, Sequence *s) {
    for (int **t = s->block_table; t != s->block_table + L1_PT_SIZE; ++t)
        if (*t) unref_table(e, *t);
    free(s->block_table);
    free(s);
}

static Sequence *blank(int id, int kv) {
    Sequence *s = malloc(sizeof *s);
    if (!s) return NULL;
    s->seq_id = id;
    s->kv_count = kv;
    s->node.prev = s->node.next = NULL;
    s->block_table = malloc(sizeof(int *) << 4);
    if (!s->block_table) { free(s); return NULL; }
    for (int **t = s->block_table; t != s->block_table + L1_PT_SIZE; ++t) *t = NULL;
    return s;
}

static int *blank_table(void) {
    int *t = malloc(sizeof(int) << 4);
    if (t) for (int *p = t; p != t + L2_PT_SIZE; ++p) *p = -1;
    return t;
}

static int32_t grab(LLMEngine *e) {
    int *rc = e->ref_count;
    for (int32_t i = 0; i < e->total_local_blocks; ++i, ++rc)
        if (!*rc) { *rc = 1; --e->free_local_blocks; return i; }
    return -1;
}

static void link_last(LLMEngine *e, Sequence *s) {
    struct list_node *h = &e->active_seqs, *last = h->prev;
    s->node = (struct list_node){ last, h };
    last->next = h->prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (!pool_addr || pool_size < BLOCK_SIZE) return NULL;
    LLMEngine *e = malloc(sizeof *e);
    if (!e) return NULL;
    int32_t n = (int32_t)(pool_size >> BLK_SHIFT);
    int *rc = calloc((size_t)n, sizeof *rc);
    if (!rc) { free(e); return NULL; }
    *e = (LLMEngine){ .pool_base_ptr = pool_addr, .total_local_blocks = n, .free_local_blocks = n, .ref_count = rc };
    e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (!engine) return NULL;
    if (initial_kv_len <= 0 || lookup(engine, seq_id)) return NULL;
    uint32_t need = ((uint32_t)initial_kv_len + KV_MASK) >> KV_SHIFT;
    if (need > 256u || (int64_t)need > engine->free_local_blocks) return NULL;
    Sequence *s = blank(seq_id, initial_kv_len);
    if (!s) return NULL;
    for (uint32_t k = 0; k < need; ++k) {
        int **t = s->block_table + (k >> L2_SHIFT);
        if ((k & L2_MASK) == 0 && !(*t = blank_table())) { wreck(engine, s); return NULL; }
        *(*t + (k & L2_MASK)) = grab(engine);
    }
    link_last(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (!engine) return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s) return -1;
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;
    wreck(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (!engine) return NULL;
    Sequence *dad = lookup(engine, parent_seq_id);
    if (!dad || lookup(engine, new_seq_id)) return NULL;
    Sequence *kid = blank(new_seq_id, dad->kv_count);
    if (!kid) return NULL;
    int **to = kid->block_table;
    for (int **from = dad->block_table; from != dad->block_table + L1_PT_SIZE; ++from, ++to) {
        if (!*from) continue;
        if (!(*to = blank_table())) { wreck(engine, kid); return NULL; }
        int *d = *to;
        for (int *s = *from; s != *from + L2_PT_SIZE; ++s, ++d)
            if (*s != -1) ++engine->ref_count[*d = *s];
    }
    link_last(engine, kid);
    return kid;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (!engine) return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s) return -1;
    uint32_t kv = (uint32_t)s->kv_count, logical = kv >> KV_SHIFT;
    if (logical >= 256u) return -1;
    int **t = s->block_table + (logical >> L2_SHIFT);
    int old = *t ? *(*t + (logical & L2_MASK)) : -1;
    byte *pool = engine->pool_base_ptr;
    int now = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (!engine->free_local_blocks) return -1;
        if (!*t && !(*t = blank_table())) return -1;
        now = grab(engine);
        if (old != -1) {
            memcpy(pool + ((size_t)now << BLK_SHIFT), pool + ((size_t)old << BLK_SHIFT), 64);
            --engine->ref_count[old];
        }
        *(*t + (logical & L2_MASK)) = now;
    }
    *((int *)(pool + ((size_t)now << BLK_SHIFT)) + (kv & KV_MASK)) = kv_data;
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (!engine) return -1;
    for (struct list_node *n = engine->active_seqs.next, *nx; n != &engine->active_seqs; n = nx) {
        nx = n->next;
        wreck(engine, node2seq(n));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

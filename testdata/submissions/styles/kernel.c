/* NOT TO BE HANDED IN: a correct submission of this project's own. Style: list helpers as in the Linux kernel, nothing static. */
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include "llm_memory.h"

#define list_entry(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

int debug_level = 0;

void list_init(struct list_node *head) {
    head->next = head;
    head->prev = head;
}

void list_add_tail(struct list_node *n, struct list_node *head) {
    struct list_node *prev = head->prev;
    n->next = head;
    n->prev = prev;
    prev->next = n;
    head->prev = n;
}

void list_del(struct list_node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->next = n->prev = NULL;
}

Sequence *lookup(LLMEngine *engine, int id) {
    struct list_node *pos;
    list_for_each(pos, &engine->active_seqs) {
        Sequence *s = list_entry(pos, Sequence, node);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

int alloc_block(LLMEngine *engine) {
    for (int i = 0; i <= engine->total_local_blocks - 1; i++) {
        if (!engine->ref_count[i]) {
            engine->ref_count[i]++;
            engine->free_local_blocks -= 1;
            return i;
        }
    }
    return -1;
}

void put_block(LLMEngine *engine, int id) {
    if (id < 0)
        return;
    if (--engine->ref_count[id] == 0)
        engine->free_local_blocks += 1;
}

int *alloc_l2(void) {
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    if (t)
        memset(t, 0xff, sizeof(int) * L2_PT_SIZE);
    return t;
}

Sequence *alloc_seq(int id) {
    Sequence *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    if (!s->block_table) {
        free(s);
        return NULL;
    }
    s->seq_id = id;
    return s;
}

void release_seq(LLMEngine *engine, Sequence *s, bool put) {
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        int *t = s->block_table[i];
        if (t) {
            for (int j = 0; j < L2_PT_SIZE && put; ++j)
                put_block(engine, t[j]);
            free(t);
        }
    }
    free(s->block_table);
    free(s);
}

char *block_address(LLMEngine *engine, int id) {
    return (char *)engine->pool_base_ptr + (long)id * BLOCK_SIZE;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    LLMEngine *engine;
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = engine->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    list_init(&engine->active_seqs);
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || lookup(engine, seq_id))
        return NULL;
    unsigned required = ((unsigned)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > MAX_LOGICAL_BLOCKS || (int)required > engine->free_local_blocks)
        return NULL;
    Sequence *s = alloc_seq(seq_id);
    if (!s)
        return NULL;
    for (unsigned b = 0; b < required; b++) {
        int **home = &s->block_table[b >> 4];
        if (!*home)
            *home = alloc_l2();
        (*home)[b & 15] = alloc_block(engine);
    }
    s->kv_count = initial_kv_len;
    list_add_tail(&s->node, &engine->active_seqs);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (!engine)
        return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;
    list_del(&s->node);
    release_seq(engine, s, true);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (!engine)
        return NULL;
    Sequence *parent = lookup(engine, parent_seq_id);
    if (!parent || lookup(engine, new_seq_id))
        return NULL;
    Sequence *child = alloc_seq(new_seq_id);
    if (!child)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!parent->block_table[i])
            continue;
        child->block_table[i] = alloc_l2();
        memcpy(child->block_table[i], parent->block_table[i], sizeof(int) * L2_PT_SIZE);
        for (int j = 0; j < L2_PT_SIZE; ++j)
            if (child->block_table[i][j] >= 0)
                ++engine->ref_count[child->block_table[i][j]];
    }
    child->kv_count = parent->kv_count;
    list_add_tail(&child->node, &engine->active_seqs);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (!engine)
        return -1;
    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;
    div_t at = div(s->kv_count, KV_PER_BLOCK);
    if (at.quot >= MAX_LOGICAL_BLOCKS)
        return -1;
    int l1 = at.quot >> 4, l2 = at.quot & 15;
    int *t = s->block_table[l1];
    bool mapped = t && t[l2] != -1;
    bool shared = mapped && engine->ref_count[t[l2]] > 1;
    if ((!mapped || shared) && engine->free_local_blocks == 0)
        return -1;
    if (!t)
        t = s->block_table[l1] = alloc_l2();
    if (!mapped) {
        t[l2] = alloc_block(engine);
    } else if (shared) {
        int from = t[l2];
        int to = alloc_block(engine);
        memcpy(block_address(engine, to), block_address(engine, from), BLOCK_SIZE);
        put_block(engine, from);
        t[l2] = to;
    }
    ((int *)block_address(engine, t[l2]))[at.rem] = kv_data;
    s->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (!engine)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *s = list_entry(engine->active_seqs.next, Sequence, node);
        list_del(&s->node);
        release_seq(engine, s, false);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

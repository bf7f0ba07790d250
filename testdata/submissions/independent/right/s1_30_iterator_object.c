/* STYLE: page iterator object over the mapped entries; size_t indices; long explanatory comments */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * I iterate over the mapped blocks of a sequence in two functions (fork, free).
 * The iterator never stops at a NULL table, it only skips it.
 */
typedef struct {
    int **root;
    size_t pos; /* 0 .. 256 */
} PageIter;

static PageIter pages(Sequence *s)
{
    PageIter it = { s->block_table, 0 };
    return it;
}

static int *next_page(PageIter *it)
{
    while (it->pos < (size_t)L1_PT_SIZE * L2_PT_SIZE) {
        int *table = it->root[it->pos / L2_PT_SIZE];
        if (table == NULL) {
            it->pos += L2_PT_SIZE; /* pos is a multiple of 16 here */
            continue;
        }
        int *entry = table + it->pos % L2_PT_SIZE;
        it->pos++;
        if (*entry != -1)
            return entry;
    }
    return NULL;
}

/*
 * A node is embedded in its sequence, see the danger zone of the handout:
 * I have to subtract the offset of the field in *bytes*.
 */
static Sequence *to_seq(struct list_node *node)
{
    char *address = (char *)node;
    return (Sequence *)(address - offsetof(Sequence, node));
}

static Sequence *find_by_id(LLMEngine *engine, int wanted)
{
    struct list_node *node = engine->active_seqs.next;
    for (; node != &engine->active_seqs; node = node->next) {
        if (to_seq(node)->seq_id == wanted) {
            return to_seq(node);
        }
    }
    return NULL;
}

/* First fit, and bookkeeping at the same place so that it can not be forgotten. */
static int allocate_block(LLMEngine *engine)
{
    for (int id = 0; id < engine->total_local_blocks; id++) {
        if (engine->ref_count[id] == 0) {
            engine->ref_count[id] = 1;
            engine->free_local_blocks--;
            return id;
        }
    }
    return -1; /* not reached: everyone asks free_local_blocks first */
}

/* All 16 entries unmapped. NULL if there is no memory. */
static int *make_table(void)
{
    int *table = malloc(L2_PT_SIZE * sizeof(int));
    if (table != NULL) {
        for (size_t i = 0; i < L2_PT_SIZE; i++) {
            table[i] = -1;
        }
    }
    return table;
}

/* Only the memory: the blocks must have been dropped before. */
static void free_tables(Sequence *seq)
{
    for (size_t i = 0; i < L1_PT_SIZE; i++) {
        free(seq->block_table[i]); /* free(NULL) is fine */
    }
    free(seq->block_table);
    free(seq);
}

static void drop_blocks(LLMEngine *engine, Sequence *seq)
{
    PageIter it = pages(seq);
    for (int *page; (page = next_page(&it)) != NULL;) {
        engine->ref_count[*page]--;
        if (engine->ref_count[*page] == 0) {
            engine->free_local_blocks++;
        }
    }
}

static Sequence *make_seq(void)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (seq == NULL) {
        return NULL;
    }
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (size_t i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    return seq;
}

/* The tail is head->prev because the list is circular. */
static void append_to_list(LLMEngine *engine, Sequence *seq)
{
    struct list_node *head = &engine->active_seqs;
    struct list_node *tail = head->prev;
    seq->node.prev = tail;
    seq->node.next = head;
    tail->next = &seq->node;
    head->prev = &seq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0 || find_by_id(engine, seq_id) != NULL) {
        return NULL;
    }
    /* in size_t so that the addition can not overflow */
    size_t required = ((size_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > 256 || (long)required > (long)engine->free_local_blocks) {
        return NULL;
    }
    Sequence *seq = make_seq();
    if (seq == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < required; i++) {
        size_t l1 = i / L2_PT_SIZE;
        size_t l2 = i % L2_PT_SIZE;
        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = make_table();
            if (seq->block_table[l1] == NULL) {
                drop_blocks(engine, seq);
                free_tables(seq);
                return NULL;
            }
        }
        seq->block_table[l1][l2] = allocate_block(engine);
    }
    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    append_to_list(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = find_by_id(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    drop_blocks(engine, seq);
    free_tables(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) {
        return NULL;
    }
    Sequence *parent = find_by_id(engine, parent_seq_id);
    if (parent == NULL || find_by_id(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *child = make_seq();
    if (child == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = make_table();
        if (child->block_table[i] == NULL) {
            free_tables(child);
            return NULL;
        }
        for (size_t j = 0; j < L2_PT_SIZE; j++) {
            child->block_table[i][j] = parent->block_table[i][j];
        }
    }
    PageIter it = pages(child);
    for (int *page; (page = next_page(&it)) != NULL;) {
        engine->ref_count[*page]++;
    }
    child->kv_count = parent->kv_count;
    child->seq_id = new_seq_id;
    append_to_list(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = find_by_id(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256) {
        return -1;
    }
    int l1 = logical_idx / L2_PT_SIZE;
    int l2 = logical_idx % L2_PT_SIZE;

    int current = -1;
    if (seq->block_table[l1] != NULL) {
        current = seq->block_table[l1][l2];
    }

    if (current == -1 || engine->ref_count[current] > 1) {
        /* new page or copy on write: both need exactly one block */
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = make_table();
            if (seq->block_table[l1] == NULL) {
                return -1;
            }
        }
        int fresh = allocate_block(engine);
        if (current != -1) {
            char *pool = (char *)engine->pool_base_ptr;
            memcpy(pool + (size_t)fresh * BLOCK_SIZE, pool + (size_t)current * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[current]--;
        }
        seq->block_table[l1][l2] = fresh;
        current = fresh;
    }

    char *block = (char *)engine->pool_base_ptr + (size_t)current * BLOCK_SIZE;
    int *records = (int *)block;
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }
    struct list_node *node = engine->active_seqs.next;
    while (node != &engine->active_seqs) {
        Sequence *seq = to_seq(node);
        node = node->next; /* before the node is freed */
        free_tables(seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

/*
 * NOT TO BE HANDED IN. A correct, plain submission of this project's own: the
 * grader's suite must accept it, its one-line mutations must be caught, and the
 * benchmarks compare with it. Handing it in is plagiarism, and graders know it.
 */
#include "llm_memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static Sequence *sequence_of(struct list_node *node) {
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find(LLMEngine *engine, int seq_id) {
    struct list_node *head = &engine->active_seqs;
    for (struct list_node *node = head->next; node != head; node = node->next) {
        Sequence *seq = sequence_of(node);
        if (seq->seq_id == seq_id) {
            return seq;
        }
    }
    return NULL;
}

static void link_tail(LLMEngine *engine, Sequence *seq) {
    struct list_node *head = &engine->active_seqs;
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
}

static void unlink_node(Sequence *seq) {
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
}

static int first_fit(LLMEngine *engine) {
    for (int id = 0; id < engine->total_local_blocks; id++) {
        if (engine->ref_count[id] == 0) {
            return id;
        }
    }
    return -1;
}

static int take_block(LLMEngine *engine) {
    int id = first_fit(engine);
    if (id >= 0) {
        engine->ref_count[id] = 1;
        engine->free_local_blocks--;
    }
    return id;
}

static int *new_l2(void) {
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    if (l2 != NULL) {
        for (int i = 0; i < L2_PT_SIZE; i++) {
            l2[i] = -1;
        }
    }
    return l2;
}

static Sequence *new_sequence(int seq_id, int kv_count) {
    Sequence *seq = malloc(sizeof *seq);
    if (seq == NULL) {
        return NULL;
    }
    seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    return seq;
}

static void free_tables(Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static void drop_blocks(LLMEngine *engine, Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = seq->block_table[i][j];
            if (id == -1) {
                continue;
            }
            engine->ref_count[id]--;
            if (engine->ref_count[id] == 0) {
                engine->free_local_blocks++;
            }
        }
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE || pool_size / BLOCK_SIZE > INT_MAX) {
        return NULL;
    }
    LLMEngine *engine = malloc(sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof *engine->ref_count);
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }
    if (find(engine, seq_id) != NULL) {
        return NULL;
    }
    int required = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK != 0);
    if (required > MAX_LOGICAL_BLOCKS) {
        return NULL;
    }
    if (required > engine->free_local_blocks) {
        return NULL;
    }
    Sequence *seq = new_sequence(seq_id, initial_kv_len);
    if (seq == NULL) {
        return NULL;
    }
    for (int i = 0; i * L2_PT_SIZE < required; i++) {
        seq->block_table[i] = new_l2();
        if (seq->block_table[i] == NULL) {
            free_tables(seq);
            return NULL;
        }
    }
    for (int logical = 0; logical < required; logical++) {
        seq->block_table[logical / L2_PT_SIZE][logical % L2_PT_SIZE] = take_block(engine);
    }
    link_tail(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = find(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    unlink_node(seq);
    drop_blocks(engine, seq);
    free_tables(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }
    Sequence *parent = find(engine, parent_seq_id);
    if (parent == NULL) {
        return NULL;
    }
    if (find(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *child = new_sequence(new_seq_id, parent->kv_count);
    if (child == NULL) {
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = new_l2();
        if (child->block_table[i] == NULL) {
            free_tables(child);
            return NULL;
        }
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = parent->block_table[i][j];
            child->block_table[i][j] = id;
            if (id != -1) {
                engine->ref_count[id]++;
            }
        }
    }
    link_tail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = find(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    int logical = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int l1 = logical / L2_PT_SIZE;
    int l2 = logical % L2_PT_SIZE;
    int id = seq->block_table[l1] == NULL ? -1 : seq->block_table[l1][l2];
    if (id == -1 || engine->ref_count[id] > 1) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = new_l2();
            if (seq->block_table[l1] == NULL) {
                return -1;
            }
        }
        int fresh = take_block(engine);
        char *pool = engine->pool_base_ptr;
        if (id != -1) {
            memcpy(pool + (size_t)fresh * BLOCK_SIZE, pool + (size_t)id * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[id]--;
        }
        seq->block_table[l1][l2] = fresh;
        id = fresh;
    }
    int *records = (int *)((char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *node = engine->active_seqs.next;
    while (node != &engine->active_seqs) {
        Sequence *seq = sequence_of(node);
        node = node->next;
        free_tables(seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

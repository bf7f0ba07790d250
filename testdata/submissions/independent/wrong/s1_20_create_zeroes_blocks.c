/* MISTAKE: create_sequence clears every block it takes, task 2, shows in the pool bytes after create */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

typedef int L2Table[L2_PT_SIZE];
typedef int PoolBlock[KV_PER_BLOCK];

#define POOL(e) ((PoolBlock *)(e)->pool_base_ptr)

Sequence *seq_entry(struct list_node *ptr) {
    return (Sequence *)((char *)ptr - offsetof(Sequence, node));
}

static Sequence *find_seq(LLMEngine *engine, int seq_id) {
    Sequence *result = NULL;
    for (struct list_node *curr = engine->active_seqs.next;
         curr != &engine->active_seqs && result == NULL;
         curr = curr->next) {
        if (seq_entry(curr)->seq_id == seq_id) result = seq_entry(curr);
    }
    return result;
}

static int find_free_block(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; ++i) {
        if (engine->ref_count[i] == 0) return i;
    }
    return -1;
}

static int *alloc_l2(void) {
    L2Table *t = malloc(sizeof(L2Table));
    if (!t) return NULL;
    for (int i = 0; i < L2_PT_SIZE; ++i) (*t)[i] = -1;
    return *t;
}

static void free_seq_memory(Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (seq->block_table[i]) free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static Sequence *alloc_seq(void) {
    Sequence *seq = (Sequence *)malloc(sizeof(Sequence));
    if (!seq) return NULL;
    seq->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
    if (!seq->block_table) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; ++i) seq->block_table[i] = NULL;
    return seq;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;

    LLMEngine *engine = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (!engine) return NULL;

    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / sizeof(PoolBlock));
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = (int *)calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (!engine->ref_count) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    // Phase 1
    if (initial_kv_len <= 0) return NULL;
    if (find_seq(engine, seq_id)) return NULL;
    // Phase 2
    unsigned required = ((unsigned)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > 256) return NULL;
    if ((int)required > engine->free_local_blocks) return NULL;

    Sequence *seq = alloc_seq();
    if (!seq) return NULL;

    unsigned mapped = 0;
    for (unsigned i = 0; mapped < required; ++i) {
        seq->block_table[i] = alloc_l2();
        if (!seq->block_table[i]) {
            // undo: the blocks mapped so far are exactly ours
            while (mapped-- > 0) {
                engine->ref_count[seq->block_table[mapped / L2_PT_SIZE][mapped % L2_PT_SIZE]] = 0;
                engine->free_local_blocks++;
            }
            free_seq_memory(seq);
            return NULL;
        }
        for (unsigned j = 0; j < L2_PT_SIZE && mapped < required; ++j, ++mapped) {
            int block = find_free_block(engine);
            seq->block_table[i][j] = block;
            engine->ref_count[block] = 1;
            engine->free_local_blocks--;
            memset(POOL(engine)[block], 0, sizeof(PoolBlock));
        }
    }

    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    struct list_node *head = &engine->active_seqs;
    seq->node.next = head;
    seq->node.prev = head->prev;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;
    Sequence *seq = find_seq(engine, seq_id);
    if (!seq) return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!seq->block_table[i]) continue;
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int block = seq->block_table[i][j];
            if (block == -1) continue;
            engine->ref_count[block]--;
            if (engine->ref_count[block] == 0) engine->free_local_blocks++;
        }
    }
    free_seq_memory(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;
    Sequence *parent = find_seq(engine, parent_seq_id);
    if (!parent) return NULL;
    if (find_seq(engine, new_seq_id)) return NULL;

    Sequence *child = alloc_seq();
    if (!child) return NULL;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!parent->block_table[i]) continue;
        child->block_table[i] = alloc_l2();
        if (!child->block_table[i]) {
            free_seq_memory(child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; ++j) child->block_table[i][j] = parent->block_table[i][j];
    }
    // all memory is there: now take the references
    for (int k = 0; k < L1_PT_SIZE * L2_PT_SIZE; ++k) {
        int *t = child->block_table[k / L2_PT_SIZE];
        if (t && t[k % L2_PT_SIZE] != -1) engine->ref_count[t[k % L2_PT_SIZE]]++;
    }
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    struct list_node *head = &engine->active_seqs;
    child->node.next = head;
    child->node.prev = head->prev;
    head->prev->next = &child->node;
    head->prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;
    Sequence *seq = find_seq(engine, seq_id);
    if (!seq) return -1;

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256) return -1;
    int l1_idx = logical_idx / L2_PT_SIZE;
    int l2_idx = logical_idx % L2_PT_SIZE;

    int phys = -1;
    if (seq->block_table[l1_idx]) phys = seq->block_table[l1_idx][l2_idx];
    int need_cow = phys != -1 && engine->ref_count[phys] > 1;
    int need_new = phys == -1;

    if ((need_new || need_cow) && engine->free_local_blocks == 0) return -1;

    if (!seq->block_table[l1_idx]) {
        seq->block_table[l1_idx] = alloc_l2();
        if (!seq->block_table[l1_idx]) return -1;
    }
    if (need_new) {
        phys = find_free_block(engine);
        engine->ref_count[phys] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = phys;
    }
    if (need_cow) {
        int fresh = find_free_block(engine);
        memcpy(POOL(engine)[fresh], POOL(engine)[phys], sizeof(PoolBlock));
        engine->ref_count[phys]--;
        engine->ref_count[fresh] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = fresh;
        phys = fresh;
    }
    POOL(engine)[phys][offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;
    struct list_node *curr = engine->active_seqs.next;
    while (curr != &engine->active_seqs) {
        struct list_node *tmp = curr;
        curr = curr->next;
        free_seq_memory(seq_entry(tmp));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

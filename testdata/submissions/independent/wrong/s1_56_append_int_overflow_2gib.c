/* MISTAKE: the byte offset of the target is computed in int, task 4, shows only with blocks at 2 GiB and above */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

static Sequence *search_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *result = NULL;
    struct list_node *node = engine->active_seqs.next;

    while (result == NULL && node != &engine->active_seqs) {
        Sequence *candidate = (Sequence *)((char *)node - offsetof(Sequence, node));
        if (candidate->seq_id == seq_id) {
            result = candidate;
        } else {
            node = node->next;
        }
    }
    return result;
}

static int pick_block(LLMEngine *engine)
{
    int picked = -1;
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            picked = i;
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            break;
        }
    }
    return picked;
}

static int *build_l2(void)
{
    int *l2 = malloc(sizeof(int) * L2_PT_SIZE);
    if (l2 != NULL) {
        for (int i = 0; i < L2_PT_SIZE; i++) {
            l2[i] = -1;
        }
    }
    return l2;
}

static Sequence *build_seq(int seq_id, int kv_count)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (seq != NULL) {
        seq->seq_id = seq_id;
        seq->kv_count = kv_count;
        seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
        if (seq->block_table != NULL) {
            for (int i = 0; i < L1_PT_SIZE; i++) {
                seq->block_table[i] = NULL;
            }
        } else {
            free(seq);
            seq = NULL;
        }
    }
    return seq;
}

static void scrap_seq(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                int block = seq->block_table[i][j];
                if (block != -1) {
                    engine->ref_count[block]--;
                    if (engine->ref_count[block] == 0) {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(seq->block_table[i]);
        }
    }
    free(seq->block_table);
    free(seq);
}

static void add_last(LLMEngine *engine, Sequence *seq)
{
    struct list_node *old_last = engine->active_seqs.prev;
    seq->node.next = &engine->active_seqs;
    seq->node.prev = old_last;
    old_last->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *engine = NULL;

    if (pool_addr != NULL && pool_size >= BLOCK_SIZE) {
        engine = malloc(sizeof(LLMEngine));
        if (engine != NULL) {
            engine->pool_base_ptr = pool_addr;
            engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
            engine->free_local_blocks = engine->total_local_blocks;
            engine->active_seqs.prev = &engine->active_seqs;
            engine->active_seqs.next = &engine->active_seqs;
            engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
            if (engine->ref_count == NULL) {
                free(engine);
                engine = NULL;
            }
        }
    }
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) {
        return NULL;
    }

    Sequence *seq = NULL;

    if (initial_kv_len > 0 && initial_kv_len <= L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK
        && search_sequence(engine, seq_id) == NULL) {
        int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
        if (required <= engine->free_local_blocks) {
            seq = build_seq(seq_id, initial_kv_len);
            if (seq != NULL) {
                int ok = 1;
                for (int n = 0; ok && n < required; n++) {
                    int l1 = n / L2_PT_SIZE;
                    int l2 = n % L2_PT_SIZE;
                    if (l2 == 0) {
                        seq->block_table[l1] = build_l2();
                    }
                    if (seq->block_table[l1] == NULL) {
                        ok = 0;
                    } else {
                        seq->block_table[l1][l2] = pick_block(engine);
                    }
                }
                if (ok) {
                    add_last(engine, seq);
                } else {
                    scrap_seq(engine, seq);
                    seq = NULL;
                }
            }
        }
    }
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) {
        return -1;
    }

    int result = -1;
    Sequence *seq = search_sequence(engine, seq_id);

    if (seq != NULL) {
        seq->node.prev->next = seq->node.next;
        seq->node.next->prev = seq->node.prev;
        scrap_seq(engine, seq);
        result = 0;
    }
    return result;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) {
        return NULL;
    }

    Sequence *child = NULL;
    Sequence *parent = search_sequence(engine, parent_seq_id);

    if (parent != NULL && search_sequence(engine, new_seq_id) == NULL) {
        child = build_seq(new_seq_id, parent->kv_count);
        if (child != NULL) {
            int ok = 1;
            for (int i = 0; ok && i < L1_PT_SIZE; i++) {
                if (parent->block_table[i] != NULL) {
                    child->block_table[i] = build_l2();
                    if (child->block_table[i] == NULL) {
                        ok = 0;
                    } else {
                        for (int j = 0; j < L2_PT_SIZE; j++) {
                            if (parent->block_table[i][j] != -1) {
                                child->block_table[i][j] = parent->block_table[i][j];
                                engine->ref_count[child->block_table[i][j]]++;
                            }
                        }
                    }
                }
            }
            if (ok) {
                add_last(engine, child);
            } else {
                scrap_seq(engine, child);
                child = NULL;
            }
        }
    }
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }

    int result = -1;
    Sequence *seq = search_sequence(engine, seq_id);

    if (seq != NULL && seq->kv_count / KV_PER_BLOCK < L1_PT_SIZE * L2_PT_SIZE) {
        int logical_idx = seq->kv_count / KV_PER_BLOCK;
        int offset = seq->kv_count % KV_PER_BLOCK;
        int l1 = logical_idx / L2_PT_SIZE;
        int l2 = logical_idx % L2_PT_SIZE;
        char *pool = engine->pool_base_ptr;
        int target = -1;

        if (seq->block_table[l1] != NULL) {
            target = seq->block_table[l1][l2];
        }
        if (target == -1 || engine->ref_count[target] > 1) {
            int source = target;
            target = -1;
            if (engine->free_local_blocks != 0) {
                if (seq->block_table[l1] == NULL) {
                    seq->block_table[l1] = build_l2();
                }
                if (seq->block_table[l1] != NULL) {
                    target = pick_block(engine);
                    seq->block_table[l1][l2] = target;
                    if (source != -1) {
                        memcpy(pool + (size_t)target * BLOCK_SIZE,
                               pool + (size_t)source * BLOCK_SIZE, BLOCK_SIZE);
                        engine->ref_count[source]--;
                    }
                }
            }
        }
        if (target != -1) {
            int *block = (int *)(pool + target * BLOCK_SIZE);
            block[offset] = kv_data;
            seq->kv_count++;
            result = 0;
        }
    }
    return result;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }

    while (engine->active_seqs.next != &engine->active_seqs) {
        struct list_node *node = engine->active_seqs.next;
        engine->active_seqs.next = node->next;
        node->next->prev = &engine->active_seqs;
        scrap_seq(engine, (Sequence *)((char *)node - offsetof(Sequence, node)));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

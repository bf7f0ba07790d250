/* STYLE: one big static function operate(op, ...) does all sequence work; APIs only forward */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

enum op { OP_CREATE, OP_FORK, OP_FREE, OP_APPEND };

struct request {
    enum op op;
    int id;     /* sequence, or the new one */
    int arg;    /* length, parent or data */
};

struct reply {
    int status;
    Sequence *seq;
};

static const struct reply refused = { -1, NULL };

static struct reply operate(LLMEngine *eng, struct request rq)
{
    struct list_node *const head = &eng->active_seqs;
    Sequence *hit = NULL, *parent = NULL, *neu = NULL;
    int need = 0, i, j, k, b;
    char *pool = eng->pool_base_ptr;

    if (rq.op == OP_CREATE && rq.arg <= 0)
        return refused;

    /* one pass finds everything by id */
    for (struct list_node *n = head->next; n != head; n = n->next) {
        Sequence *s = (Sequence *)((char *)n - offsetof(Sequence, node));
        if (s->seq_id == rq.id && hit == NULL)
            hit = s;
        if (s->seq_id == rq.arg && parent == NULL)
            parent = s;
    }

    switch (rq.op) {
    case OP_CREATE:
        if (hit != NULL || rq.arg > 4096)
            return refused;
        need = (rq.arg + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
        if (need > eng->free_local_blocks)
            return refused;
        break;
    case OP_FORK:
        if (hit != NULL || parent == NULL)
            return refused;
        break;
    case OP_FREE:
        if (hit == NULL)
            return refused;
        hit->node.prev->next = hit->node.next;
        hit->node.next->prev = hit->node.prev;
        for (i = 0; i < L1_PT_SIZE; i++) {
            if (hit->block_table[i] == NULL)
                continue;
            for (j = 0; j < L2_PT_SIZE; j++) {
                b = hit->block_table[i][j];
                if (b == -1)
                    continue;
                eng->ref_count[b]--;
                if (eng->ref_count[b] == 0)
                    eng->free_local_blocks++;
            }
            free(hit->block_table[i]);
        }
        free(hit->block_table);
        free(hit);
        return (struct reply){ 0, NULL };
    case OP_APPEND: {
        if (hit == NULL)
            return refused;
        k = hit->kv_count / KV_PER_BLOCK;
        if (k >= 256)
            return refused;
        i = k / L2_PT_SIZE;
        j = k % L2_PT_SIZE;
        int *l2 = hit->block_table[i];
        int old = l2 != NULL ? l2[j] : -1;
        b = old;
        if (old == -1 || eng->ref_count[old] > 1) {
            if (eng->free_local_blocks == 0)
                return refused;
            for (b = 0; b < eng->total_local_blocks; b++)
                if (eng->ref_count[b] == 0)
                    break;
            if (b == eng->total_local_blocks)
                return refused;
            if (l2 == NULL) {
                l2 = malloc(sizeof(int) * L2_PT_SIZE);
                if (l2 == NULL)
                    return refused;
                for (k = 0; k < L2_PT_SIZE; k++)
                    l2[k] = -1;
                hit->block_table[i] = l2;
            }
            eng->ref_count[b] = 1;
            eng->free_local_blocks--;
            l2[j] = b;
            if (old != -1) {
                memcpy(pool + (size_t)b * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
                eng->ref_count[old]--;
            }
        }
        ((int *)(pool + (size_t)b * BLOCK_SIZE))[hit->kv_count % KV_PER_BLOCK] = rq.arg;
        hit->kv_count++;
        return (struct reply){ 0, hit };
    }
    }

    /* create and fork meet again here */
    neu = malloc(sizeof(Sequence));
    if (neu == NULL)
        return refused;
    neu->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (neu->block_table == NULL) {
        free(neu);
        return refused;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
        neu->block_table[i] = NULL;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (rq.op == OP_CREATE ? i * L2_PT_SIZE >= need : parent->block_table[i] == NULL)
            continue;
        neu->block_table[i] = malloc(sizeof(int) * L2_PT_SIZE);
        if (neu->block_table[i] == NULL) {
            while (i > 0)
                free(neu->block_table[--i]);
            free(neu->block_table);
            free(neu);
            return refused;
        }
        for (j = 0; j < L2_PT_SIZE; j++)
            neu->block_table[i][j] = rq.op == OP_FORK ? parent->block_table[i][j] : -1;
    }
    if (rq.op == OP_CREATE) {
        for (k = 0; k < need; k++) {
            for (b = 0; b < eng->total_local_blocks; b++)
                if (eng->ref_count[b] == 0)
                    break;
            eng->ref_count[b] = 1;
            eng->free_local_blocks--;
            neu->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
        }
        neu->kv_count = rq.arg;
    } else {
        for (k = 0; k < L1_PT_SIZE * L2_PT_SIZE; k++) {
            int *l2 = neu->block_table[k / L2_PT_SIZE];
            if (l2 != NULL && l2[k % L2_PT_SIZE] != -1)
                eng->ref_count[l2[k % L2_PT_SIZE]]++;
        }
        neu->kv_count = parent->kv_count;
    }
    neu->seq_id = rq.id;
    neu->node.prev = head->prev;
    neu->node.next = head;
    head->prev->next = &neu->node;
    head->prev = &neu->node;
    return (struct reply){ 0, neu };
}

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
    return operate(engine, (struct request){ OP_CREATE, seq_id, initial_kv_len }).seq;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    return operate(engine, (struct request){ OP_FORK, new_seq_id, parent_seq_id }).seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    return operate(engine, (struct request){ OP_FREE, seq_id, 0 }).status;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    return operate(engine, (struct request){ OP_APPEND, seq_id, kv_data }).status;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *s = (Sequence *)((char *)engine->active_seqs.next - offsetof(Sequence, node));
        operate(engine, (struct request){ OP_FREE, s->seq_id, 0 });
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

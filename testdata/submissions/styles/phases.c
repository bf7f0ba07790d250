/* NOT TO BE HANDED IN: a correct submission of this project's own. Style: phases as the handout names them, one exit, asserts, messages. */
#include "llm_memory.h"
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ACCESS_EXCLUSIVE, ACCESS_UNMAPPED, ACCESS_SHARED, ACCESS_FULL } access_t;

static Sequence *node_to_seq(struct list_node *n)
{
    uintptr_t raw = (uintptr_t)n - offsetof(Sequence, node);
    return (Sequence *)raw;
}

static int find_sequence(LLMEngine *eng, int id, Sequence **out)
{
    int found = 0;
    *out = NULL;
    for (struct list_node *it = eng->active_seqs.next; !found && it != &eng->active_seqs; it = it->next) {
        Sequence *cand = node_to_seq(it);
        if (cand->seq_id == id) {
            *out = cand;
            found = 1;
        }
    }
    return found;
}

static int first_fit(const LLMEngine *eng)
{
    int result = -1;
    for (int b = 0; b < eng->total_local_blocks && result < 0; b++)
        if (eng->ref_count[b] == 0)
            result = b;
    return result;
}

static int claim(LLMEngine *eng)
{
    int b = first_fit(eng);
    assert(b >= 0 && "the caller has counted the free blocks");
    eng->ref_count[b] = 1;
    eng->free_local_blocks = eng->free_local_blocks - 1;
    return b;
}

static int *make_l2(void)
{
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    for (int k = L2_PT_SIZE - 1; l2 != NULL && k >= 0; k--)
        l2[k] = -1;
    return l2;
}

static Sequence *make_sequence(int id, int count)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (s != NULL) {
        s->block_table = malloc(sizeof(int *[L1_PT_SIZE]));
        if (s->block_table == NULL) {
            free(s);
            s = NULL;
        } else {
            for (int k = 0; k < L1_PT_SIZE; k++)
                s->block_table[k] = NULL;
            s->seq_id = id;
            s->kv_count = count;
        }
    }
    return s;
}

static void enqueue(LLMEngine *eng, Sequence *s)
{
    struct list_node *tail = eng->active_seqs.prev;
    tail->next = &s->node;
    s->node.prev = tail;
    s->node.next = &eng->active_seqs;
    eng->active_seqs.prev = &s->node;
}

static void delete_sequence(LLMEngine *eng, Sequence *s)
{
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;
    int k = 0;
    do {
        int *l2 = s->block_table[k];
        if (l2 != NULL) {
            for (int *entry = l2; entry < l2 + L2_PT_SIZE; entry++) {
                if (*entry == -1)
                    continue;
                eng->ref_count[*entry] -= 1;
                if (eng->ref_count[*entry] == 0)
                    eng->free_local_blocks++;
            }
            free(l2);
        }
        k++;
    } while (k < L1_PT_SIZE);
    free(s->block_table);
    free(s);
}

static access_t classify(LLMEngine *eng, Sequence *s, int logical)
{
    if (logical >= MAX_LOGICAL_BLOCKS)
        return ACCESS_FULL;
    int *l2 = s->block_table[logical / 16];
    if (l2 == NULL || l2[logical % 16] == -1)
        return ACCESS_UNMAPPED;
    return eng->ref_count[l2[logical % 16]] > 1 ? ACCESS_SHARED : ACCESS_EXCLUSIVE;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng = NULL;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE) {
        eng = malloc(sizeof *eng);
        if (eng != NULL) {
            const size_t total = pool_size / BLOCK_SIZE;
            *eng = (LLMEngine){.pool_base_ptr = pool_addr, .total_local_blocks = (int)total, .free_local_blocks = (int)total};
            eng->ref_count = calloc(total, sizeof(int));
            eng->active_seqs.prev = &eng->active_seqs;
            eng->active_seqs.next = &eng->active_seqs;
        }
    }
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) return NULL;
    Sequence *same, *result = NULL;
    int needed = initial_kv_len / KV_PER_BLOCK;
    if (initial_kv_len % KV_PER_BLOCK > 0)
        needed++;
    /* Phase 1 */
    if (initial_kv_len <= 0) {
        fprintf(stderr, "create_sequence: bad length %d\n", initial_kv_len);
    } else if (find_sequence(engine, seq_id, &same)) { /* Phase 2 */
        fprintf(stderr, "create_sequence: id %d exists\n", seq_id);
    } else if (needed <= MAX_LOGICAL_BLOCKS && needed <= engine->free_local_blocks) { /* Phase 3 */
        result = make_sequence(seq_id, initial_kv_len);
        for (int i = 0; result != NULL && i < needed; i++) {
            if (i % 16 == 0)
                result->block_table[i / 16] = make_l2();
            result->block_table[i / 16][i % 16] = claim(engine);
        }
        if (result != NULL)
            enqueue(engine, result);
    }
    return result;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) return -1;
    Sequence *s;
    if (!find_sequence(engine, seq_id, &s))
        return -1;
    delete_sequence(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) return NULL;
    Sequence *parent, *other;
    if (!find_sequence(engine, parent_seq_id, &parent) || find_sequence(engine, new_seq_id, &other))
        return NULL;
    Sequence *child = make_sequence(new_seq_id, parent->kv_count);
    if (child == NULL)
        return NULL;
    for (int k = 0; k < L1_PT_SIZE; k++) {
        const int *from = parent->block_table[k];
        if (from == NULL)
            continue;
        int *to = make_l2();
        child->block_table[k] = to;
        for (int m = 0; m < L2_PT_SIZE; m++) {
            if (from[m] != -1) {
                to[m] = from[m];
                engine->ref_count[from[m]] += 1;
            }
        }
    }
    enqueue(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) return -1;
    Sequence *s;
    if (!find_sequence(engine, seq_id, &s))
        return -1;
    const int logical = s->kv_count / KV_PER_BLOCK;
    const int offset = s->kv_count - logical * KV_PER_BLOCK;
    const access_t access = classify(engine, s, logical);
    if (access == ACCESS_FULL)
        return -1;
    if (access != ACCESS_EXCLUSIVE && engine->free_local_blocks < 1)
        return -1;
    int **table = &s->block_table[logical / 16];
    if (*table == NULL)
        *table = make_l2();
    int *entry = &(*table)[logical % 16];
    unsigned char *base = engine->pool_base_ptr;
    switch (access) {
    case ACCESS_UNMAPPED:
        *entry = claim(engine);
        break;
    case ACCESS_SHARED: {
        int source = *entry;
        *entry = claim(engine);
        memcpy(&base[(size_t)*entry * BLOCK_SIZE], &base[(size_t)source * BLOCK_SIZE], 64);
        engine->ref_count[source]--;
        break;
    }
    default:
        break;
    }
    memcpy(&base[(size_t)*entry * BLOCK_SIZE + (size_t)offset * sizeof(int)], &kv_data, sizeof kv_data);
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) return -1;
    for (struct list_node *it = engine->active_seqs.prev; it != &engine->active_seqs; it = engine->active_seqs.prev)
        delete_sequence(engine, node_to_seq(it));
    free(engine->ref_count);
    free(engine);
    return 0;
}

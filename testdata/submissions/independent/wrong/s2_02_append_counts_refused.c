/* MISTAKE: kv_count grows although the append is refused for lack of blocks, task 4, shows with a full pool */
#include "llm_memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    enum { REFUSE, IN_PLACE, MAP, COPY } action;
    Sequence *seq;
    int row, col, slot;
    int source;     /* COPY: where from */
    int target;     /* block that receives the record */
    bool new_row;
} Plan;

static Sequence *entry_of(struct list_node *link)
{
    return (Sequence *)((char *)link - offsetof(Sequence, node));
}

static Sequence *search(LLMEngine *eng, int key)
{
    struct list_node *link;
    for (link = eng->active_seqs.next; link != &eng->active_seqs; link = link->next) {
        Sequence *s = entry_of(link);
        if (s->seq_id == key)
            return s;
    }
    return NULL;
}

static int first_fit(const LLMEngine *eng)
{
    int b;
    for (b = 0; b < eng->total_local_blocks; b++)
        if (eng->ref_count[b] == 0)
            return b;
    return -1;
}

static Plan plan_append(LLMEngine *eng, int key)
{
    Plan p = { .action = REFUSE, .source = -1, .target = -1 };
    p.seq = search(eng, key);
    if (p.seq == NULL)
        return p;
    int logical = p.seq->kv_count / KV_PER_BLOCK;
    if (logical >= L1_PT_SIZE * L2_PT_SIZE)
        return p;
    p.slot = p.seq->kv_count % KV_PER_BLOCK;
    p.row = logical / L2_PT_SIZE;
    p.col = logical % L2_PT_SIZE;
    p.new_row = p.seq->block_table[p.row] == NULL;
    int mapped = p.new_row ? -1 : p.seq->block_table[p.row][p.col];
    if (mapped != -1 && eng->ref_count[mapped] == 1) {
        p.action = IN_PLACE;
        p.target = mapped;
        return p;
    }
    if (eng->free_local_blocks == 0) {
        p.seq->kv_count++;
        return p;
    }
    p.target = first_fit(eng);
    p.source = mapped;
    p.action = mapped == -1 ? MAP : COPY;
    return p;
}

static int *unmapped_row(void)
{
    int *row = malloc(sizeof(int) * L2_PT_SIZE);
    if (row)
        for (int c = 0; c < L2_PT_SIZE; c++)
            row[c] = -1;
    return row;
}

static void release_rows(int **rows, int n)
{
    while (n > 0)
        free(rows[--n]);
    free(rows);
}

/* rows[i] allocated where has[i]; NULL when anything fails */
static int **make_rows(const bool has[L1_PT_SIZE])
{
    int **rows = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!rows)
        return NULL;
    for (int r = 0; r < L1_PT_SIZE; r++) {
        rows[r] = has[r] ? unmapped_row() : NULL;
        if (has[r] && !rows[r]) {
            release_rows(rows, r);
            return NULL;
        }
    }
    return rows;
}

static Sequence *make_seq(LLMEngine *eng, int key, int records, const bool has[L1_PT_SIZE])
{
    int **rows = make_rows(has);
    if (!rows)
        return NULL;
    Sequence *s = malloc(sizeof *s);
    if (!s) {
        release_rows(rows, L1_PT_SIZE);
        return NULL;
    }
    s->seq_id = key;
    s->kv_count = records;
    s->block_table = rows;
    s->node.prev = eng->active_seqs.prev;
    s->node.next = &eng->active_seqs;
    eng->active_seqs.prev->next = &s->node;
    eng->active_seqs.prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof *eng);
    if (!eng)
        return NULL;
    int n = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = calloc((size_t)n, sizeof(int));
    if (!eng->ref_count) {
        free(eng);
        return NULL;
    }
    eng->total_local_blocks = eng->free_local_blocks = n;
    eng->pool_base_ptr = pool_addr;
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || search(engine, seq_id))
        return NULL;
    int required = (int)(((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK);
    if (required > L1_PT_SIZE * L2_PT_SIZE || required > engine->free_local_blocks)
        return NULL;
    bool has[L1_PT_SIZE];
    for (int r = 0; r < L1_PT_SIZE; r++)
        has[r] = r * L2_PT_SIZE < required;
    Sequence *s = make_seq(engine, seq_id, initial_kv_len, has);
    if (!s)
        return NULL;
    for (int k = 0; k < required; k++) {
        int b = first_fit(engine);
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
    }
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = search(engine, seq_id);
    if (!s)
        return -1;
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;
    for (int r = 0; r < L1_PT_SIZE; r++) {
        int *row = s->block_table[r];
        if (!row)
            continue;
        for (int c = 0; c < L2_PT_SIZE; c++) {
            if (row[c] == -1)
                continue;
            engine->ref_count[row[c]]--;
            engine->free_local_blocks += engine->ref_count[row[c]] == 0;
        }
    }
    release_rows(s->block_table, L1_PT_SIZE);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent = search(engine, parent_seq_id);
    if (!parent || search(engine, new_seq_id))
        return NULL;
    bool has[L1_PT_SIZE];
    for (int r = 0; r < L1_PT_SIZE; r++)
        has[r] = parent->block_table[r] != NULL;
    Sequence *child = make_seq(engine, new_seq_id, parent->kv_count, has);
    if (!child)
        return NULL;
    for (int r = 0; r < L1_PT_SIZE; r++)
        for (int c = 0; has[r] && c < L2_PT_SIZE; c++) {
            int b = parent->block_table[r][c];
            if (b == -1)
                continue;
            child->block_table[r][c] = b;
            engine->ref_count[b]++;
        }
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Plan p = plan_append(engine, seq_id);
    if (p.action == REFUSE)
        return -1;
    if (p.new_row) {
        int *row = unmapped_row();
        if (!row)
            return -1;
        p.seq->block_table[p.row] = row;
    }
    unsigned char *pool = engine->pool_base_ptr;
    if (p.action != IN_PLACE) {
        engine->ref_count[p.target] = 1;
        engine->free_local_blocks--;
        p.seq->block_table[p.row][p.col] = p.target;
    }
    if (p.action == COPY) {
        memcpy(pool + (size_t)p.target * BLOCK_SIZE, pool + (size_t)p.source * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[p.source]--;
    }
    ((int *)(pool + (size_t)p.target * BLOCK_SIZE))[p.slot] = kv_data;
    p.seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *link = engine->active_seqs.next;
    while (link != &engine->active_seqs) {
        Sequence *s = entry_of(link);
        link = link->next;
        release_rows(s->block_table, L1_PT_SIZE);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

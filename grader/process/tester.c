/*
 * The changes that a white-box tester makes to an engine between the calls: it makes
 * engines, sequences and tables, and writes to existing ones. Counts stay consistent:
 * mapping a block increments its ref_count and, if the block was free, decrements
 * free_local_blocks; unmapping does the reverse.
 *
 * watched.c includes this file. The programs of llmgrade --main contain the
 * functions that they use; each begins with a comment of one line.
 */

/* Returns the sequence with the id. */
static Sequence *find_given(LLMEngine *engine, int seq_id) {
    struct list_node *node = engine->active_seqs.next;
    for (; node != &engine->active_seqs; node = node->next) {
        Sequence *seq = (Sequence *)(void *)((char *)node - offsetof(Sequence, node));
        if (seq->seq_id == seq_id) {
            return seq;
        }
    }
    return NULL;
}

/* Makes the engine that llm_init must make. */
static LLMEngine *given_engine(void *pool, size_t pool_size) {
    LLMEngine *engine = malloc(sizeof *engine);
    engine->pool_base_ptr = pool;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

/* Appends a sequence without L2 tables to the list. */
static void given_sequence(LLMEngine *engine, int seq_id, int kv_count) {
    struct list_node *head = &engine->active_seqs;
    Sequence *seq = malloc(sizeof *seq);
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
}

/* Returns the L2 table in a slot. If there is none, it makes one without a mapped entry. */
static int *given_table(LLMEngine *engine, int seq_id, int slot) {
    Sequence *seq = find_given(engine, seq_id);
    if (seq->block_table[slot] == NULL) {
        seq->block_table[slot] = malloc(L2_PT_SIZE * sizeof(int));
        for (int i = 0; i < L2_PT_SIZE; i++) {
            seq->block_table[slot][i] = -1;
        }
    }
    return seq->block_table[slot];
}

/* Maps logical blocks logical to logical+n-1 to blocks block to block+n-1. */
static void map_blocks(LLMEngine *engine, int seq_id, int logical, int block, int n) {
    for (int i = 0; i < n; i++) {
        given_table(engine, seq_id, (logical + i) / L2_PT_SIZE)[(logical + i) % L2_PT_SIZE] = block + i;
        if (engine->ref_count[block + i]++ == 0) {
            engine->free_local_blocks--;
        }
    }
}

/* Unmaps a logical block. */
static void unmap_block(LLMEngine *engine, int seq_id, int logical) {
    int *entry = &given_table(engine, seq_id, logical / L2_PT_SIZE)[logical % L2_PT_SIZE];
    if (*entry >= 0 && --engine->ref_count[*entry] == 0) {
        engine->free_local_blocks++;
    }
    *entry = -1;
}

/* Sets kv_count of a sequence. */
static void set_kv_count(LLMEngine *engine, int seq_id, int kv_count) { find_given(engine, seq_id)->kv_count = kv_count; }

/* Changes the id of a sequence. */
static void rename_sequence(LLMEngine *engine, int seq_id, int other) { find_given(engine, seq_id)->seq_id = other; }

/* Writes one record of a block. */
static void set_record(LLMEngine *engine, int block, int offset, int value) {
    ((int *)engine->pool_base_ptr)[(size_t)block * KV_PER_BLOCK + (size_t)offset] = value;
}

/* Exchanges two L2 tables. */
static void exchange_tables(LLMEngine *engine, int seq_id, int a, int b) {
    Sequence *seq = find_given(engine, seq_id);
    int *l2 = seq->block_table[a];
    seq->block_table[a] = seq->block_table[b];
    seq->block_table[b] = l2;
}

/* Moves an allocation to another address. */
static void *moved(void *old, size_t size) {
    void *fresh = old == NULL ? NULL : malloc(size);
    if (fresh != NULL) {
        memcpy(fresh, old, size);
        free(old);
    }
    return fresh;
}

/* Moves a table to another address: 0 to 15 an L2 table, 16 the L1 table, 17 ref_count. */
static void relocate(LLMEngine *engine, int seq_id, int what) {
    Sequence *seq = find_given(engine, seq_id);
    if (what < L1_PT_SIZE) {
        seq->block_table[what] = moved(seq->block_table[what], L2_PT_SIZE * sizeof(int));
    } else if (what == L1_PT_SIZE) {
        seq->block_table = moved(seq->block_table, L1_PT_SIZE * sizeof(int *));
    } else {
        engine->ref_count = moved(engine->ref_count, (size_t)engine->total_local_blocks * sizeof(int));
    }
}

/* Removes a sequence from the list without freeing it. */
static void take_out(LLMEngine *engine, int seq_id) {
    Sequence *seq = find_given(engine, seq_id);
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
}

/* Frees a sequence with its tables. */
static void drop_sequence(LLMEngine *engine, int seq_id) {
    Sequence *seq = find_given(engine, seq_id);
    for (int i = 0; i < L1_PT_SIZE * L2_PT_SIZE; i++) {
        if (seq->block_table[i / L2_PT_SIZE] != NULL) {
            unmap_block(engine, seq_id, i);
        }
    }
    take_out(engine, seq_id);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

/* Frees an engine with all its sequences. */
static void drop_engine(LLMEngine *engine) {
    while (engine->active_seqs.next != &engine->active_seqs) {
        drop_sequence(engine, ((Sequence *)(void *)((char *)engine->active_seqs.next - offsetof(Sequence, node)))->seq_id);
    }
    free(engine->ref_count);
    free(engine);
}

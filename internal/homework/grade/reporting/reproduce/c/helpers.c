
/* Returns 1 if the list has these ids in this order, in both directions. */
static int list_is(LLMEngine *engine, const int *ids, int n) {
    struct list_node *node = &engine->active_seqs;
    for (int i = 0; i < n; i++) {
        if (node->next == NULL || node->next->prev != node || node->next == &engine->active_seqs) {
            return 0;
        }
        node = node->next;
        if (((Sequence *)(void *)((char *)node - offsetof(Sequence, node)))->seq_id != ids[i]) {
            return 0;
        }
    }
    return node->next == &engine->active_seqs && engine->active_seqs.prev == node;
}

/* Compares the first n counts with the expected ones after a step. */
static void expect_counts(int step, LLMEngine *engine, const int *counts, int n) {
    for (int i = 0; i < n; i++) {
        if (engine->ref_count[i] != counts[i]) {
            printf("step %d: engine->ref_count[%d] is %d, expected %d\n", step, i, engine->ref_count[i], counts[i]);
            wrong = 1;
        }
    }
}

/* Formats a number. Memory that was never written, or was freed, has fill bytes. */
static const char *shown(int value, char *number) {
    if ((unsigned)value == 0xa5a5a5a5 || (unsigned)value == 0xdddddddd) {
        return (unsigned)value == 0xa5a5a5a5 ? "never written" : "freed memory";
    }
    sprintf(number, "%d", value);
    return number;
}

/* Fills a pool so that neighbouring blocks differ. */
static void fill(void *pool, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)pool)[i] = (unsigned char)(0xc3 + i * 11 + i / BLOCK_SIZE * 29);
    }
}

/* Returns the number of live allocations around which a byte was overwritten. */
static int overruns(void) {
    int n = 0;
    for (struct chunk *chunk = chunks; chunk != NULL; chunk = chunk->next) {
        size_t size = chunk->size, space = (size + 15) / 16 * 16 + 16;
        int written = chunk->before[0] != 0 || chunk->before[1] != 0 || chunk->before[2] != 0;
        for (size_t i = size; chunk->at != NULL && i < space; i++) {
            written = written || (unsigned char)chunk->at[i] != 0xfd;
        }
        n += chunk->at != NULL && written;
    }
    return n;
}

/* Returns 1 if an allocation has at least size bytes from this address on. */
static int allocated(const void *from, size_t size) {
    for (struct chunk *chunk = chunks; chunk != NULL; chunk = chunk->next) {
        size_t at = (size_t)((uintptr_t)from - (uintptr_t)chunk->at);
        if (chunk->at != NULL && at <= chunk->size && size <= chunk->size - at) {
            return 1;
        }
    }
    return chunks == NULL;
}

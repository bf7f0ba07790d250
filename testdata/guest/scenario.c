/*
 * scenario - the life of an engine in a few calls, every field checked after
 * each: the same program is linked in every way there is, and the same memory
 * must come out.
 */
#include "check.h"

enum { BLOCKS = 8, UNTOUCHED = 0x5a5a5a5a };

static int pool[BLOCKS * KV_PER_BLOCK];

static void check_counts(const LLMEngine *engine, int free_blocks, const int counts[BLOCKS]) {
    CHECK(engine->pool_base_ptr == pool);
    CHECK(engine->total_local_blocks == BLOCKS);
    CHECK(engine->free_local_blocks == free_blocks);
    CHECK(memcmp(engine->ref_count, counts, BLOCKS * sizeof(int)) == 0);
    check_conserved(engine);
}

static void check_sequence(const Sequence *seq, int id, int kv_count, const int *blocks, int n) {
    CHECK(seq != NULL && seq->seq_id == id && seq->kv_count == kv_count);
    for (int i = 1; i < L1_PT_SIZE; i++) {
        CHECK(seq->block_table[i] == NULL);
    }
    for (int i = 0; i < L2_PT_SIZE; i++) {
        CHECK(seq->block_table[0][i] == (i < n ? blocks[i] : -1));
    }
}

int main(void) {
    for (int i = 0; i < BLOCKS * KV_PER_BLOCK; i++) {
        pool[i] = UNTOUCHED;
    }
    CHECK(llm_init(NULL, sizeof pool) == NULL);
    CHECK(llm_init(pool, BLOCK_SIZE - 1) == NULL);
    LLMEngine *engine = llm_init(pool, sizeof pool + BLOCK_SIZE - 1); /* the rest of a block is no block */
    CHECK(engine != NULL);
    CHECK(engine->active_seqs.next == &engine->active_seqs && engine->active_seqs.prev == &engine->active_seqs);
    check_counts(engine, 8, (int[BLOCKS]){0});

    Sequence *parent = create_sequence(engine, 7, 20);
    check_sequence(parent, 7, 20, (int[]){0, 1}, 2);
    check_counts(engine, 6, (int[BLOCKS]){1, 1});
    for (int i = 0; i < BLOCKS * KV_PER_BLOCK; i++) {
        CHECK(pool[i] == UNTOUCHED);
    }

    CHECK(append_kv(engine, 7, 1000) == 0);
    CHECK(pool[KV_PER_BLOCK + 4] == 1000);
    Sequence *child = fork_sequence(engine, 7, -8);
    check_sequence(child, -8, 21, (int[]){0, 1}, 2);
    CHECK(child->block_table != parent->block_table && child->block_table[0] != parent->block_table[0]);
    check_counts(engine, 6, (int[BLOCKS]){2, 2});

    /* The child writes first and gets the copy; then the parent is alone. */
    CHECK(append_kv(engine, -8, 2000) == 0);
    check_sequence(child, -8, 22, (int[]){0, 2}, 2);
    CHECK(pool[2 * KV_PER_BLOCK + 4] == 1000 && pool[2 * KV_PER_BLOCK + 5] == 2000);
    CHECK(pool[KV_PER_BLOCK + 5] == UNTOUCHED);
    check_counts(engine, 5, (int[BLOCKS]){2, 1, 1});
    CHECK(append_kv(engine, 7, 3000) == 0);
    check_sequence(parent, 7, 22, (int[]){0, 1}, 2);
    CHECK(pool[KV_PER_BLOCK + 5] == 3000);
    check_counts(engine, 5, (int[BLOCKS]){2, 1, 1});

    for (int position = 22; position <= 32; position++) {
        CHECK(append_kv(engine, -8, position) == 0);
    }
    check_sequence(child, -8, 33, (int[]){0, 2, 3}, 3);
    CHECK(record_at(engine, child, 31) == 31 && pool[3 * KV_PER_BLOCK] == 32);
    check_counts(engine, 4, (int[BLOCKS]){2, 1, 1, 1});

    /* Refusals change nothing. */
    CHECK(create_sequence(engine, 7, 1) == NULL && create_sequence(engine, 1, 0) == NULL);
    CHECK(create_sequence(engine, 1, 5 * KV_PER_BLOCK) == NULL && create_sequence(NULL, 1, 1) == NULL);
    CHECK(fork_sequence(engine, 1, 2) == NULL && fork_sequence(engine, 7, -8) == NULL);
    CHECK(append_kv(engine, 1, 1) == -1 && append_kv(NULL, 7, 1) == -1);
    CHECK(free_sequence(engine, 1) == -1 && free_sequence(NULL, 7) == -1 && llm_destroy(NULL) == -1);
    check_counts(engine, 4, (int[BLOCKS]){2, 1, 1, 1});

    CHECK(free_sequence(engine, 7) == 0);
    check_counts(engine, 5, (int[BLOCKS]){1, 0, 1, 1});
    check_sequence(create_sequence(engine, 9, 17), 9, 17, (int[]){1, 4}, 2); /* first fit */
    check_counts(engine, 3, (int[BLOCKS]){1, 1, 1, 1, 1});
    CHECK(sequence_at(engine->active_seqs.next) == child && sequence_at(engine->active_seqs.prev)->seq_id == 9);

    CHECK(llm_destroy(engine) == 0);
    CHECK(pool[KV_PER_BLOCK + 5] == 3000 && pool[7 * KV_PER_BLOCK] == UNTOUCHED);
    puts("scenario: as expected");
    return 0;
}

/*
 * by_hand - a tester does by hand what the library does else: frees an L2
 * table, brings its own, builds an engine and sequences with malloc, and gives
 * them to the library to free; or frees the library's himself. Run under
 * Valgrind: no byte may be lost or freed twice.
 */
#include "check.h"

enum { BLOCKS = 64 };

static int pool[BLOCKS * KV_PER_BLOCK];

static int *own_table(void) {
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    CHECK(l2 != NULL);
    for (int i = 0; i < L2_PT_SIZE; i++) {
        l2[i] = -1;
    }
    return l2;
}

static Sequence *own_sequence(LLMEngine *engine, int id) {
    Sequence *seq = malloc(sizeof *seq);
    CHECK(seq != NULL);
    seq->seq_id = id;
    seq->kv_count = 0;
    seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
    CHECK(seq->block_table != NULL);
    seq->node.prev = engine->active_seqs.prev;
    seq->node.next = &engine->active_seqs;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

static LLMEngine *own_engine(void) {
    LLMEngine *engine = malloc(sizeof *engine);
    CHECK(engine != NULL);
    engine->pool_base_ptr = pool;
    engine->total_local_blocks = engine->free_local_blocks = BLOCKS;
    engine->ref_count = calloc(BLOCKS, sizeof *engine->ref_count);
    CHECK(engine->ref_count != NULL);
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

static void free_by_hand(Sequence *seq) {
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static void a_table_goes(LLMEngine *engine) {
    Sequence *seq = create_sequence(engine, 1, 20 * KV_PER_BLOCK);
    CHECK(seq != NULL);
    for (int i = 0; i < L2_PT_SIZE; i++) {
        if (seq->block_table[0][i] != -1) {
            engine->ref_count[seq->block_table[0][i]] = 0;
            engine->free_local_blocks++;
        }
    }
    free(seq->block_table[0]);
    seq->block_table[0] = NULL;
    CHECK(fork_sequence(engine, 1, 2) != NULL);
    CHECK(plain_find(engine, 2)->block_table[0] == NULL);
    CHECK(append_kv(engine, 1, 5) == 0); /* at 320, in L2 table 1 */
    CHECK(free_sequence(engine, 1) == 0 && free_sequence(engine, 2) == 0);
    CHECK(engine->free_local_blocks == BLOCKS);
}

static void a_table_comes(LLMEngine *engine) {
    Sequence *seq = create_sequence(engine, 3, 1);
    CHECK(seq != NULL);
    seq->block_table[7] = own_table();
    seq->block_table[7][3] = 40;
    engine->ref_count[40] = 1;
    engine->free_local_blocks--;
    CHECK(free_sequence(engine, 3) == 0);
    CHECK(engine->ref_count[40] == 0 && engine->free_local_blocks == BLOCKS);
}

static void everything_is_his(void) {
    LLMEngine *engine = own_engine();
    for (int id = 0; id < 30; id++) {
        Sequence *seq = own_sequence(engine, id);
        CHECK(append_kv(engine, id, id) == 0 && record_at(engine, seq, 0) == id);
    }
    check_conserved(engine);
    CHECK(free_sequence(engine, 25) == 0 && fork_sequence(engine, 24, 25) != NULL);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
}

static void everything_is_freed_by_hand(void) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    for (int id = 0; id < 30; id++) {
        CHECK(create_sequence(engine, id, 1) != NULL);
    }
    while (engine->active_seqs.next != &engine->active_seqs) {
        free_by_hand(sequence_at(engine->active_seqs.next));
    }
    free(engine->ref_count);
    free(engine);
}

int main(void) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    a_table_goes(engine);
    a_table_comes(engine);
    CHECK(llm_destroy(engine) == 0);
    for (int i = 0; i < 5; i++) {
        everything_is_his();
        everything_is_freed_by_hand();
    }
    return 0;
}

/*
 * many - 200 sequences in one list, so that most look-ups go beyond the nodes
 * that are always walked; with batch calls where the way of linking has them.
 */
#include "check.h"

enum { BLOCKS = 1024, SEQUENCES = 200 };

static int pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *engine;

static void append_to_all(int rounds) {
    for (int i = 0; i < rounds * SEQUENCES; i++) {
        int id = i * 7919 % SEQUENCES;
        Sequence *seq = plain_find(engine, id);
        CHECK(append_kv(engine, id, i) == 0);
        CHECK(record_at(engine, seq, seq->kv_count - 1) == i);
    }
}

#ifdef WITH_EXT
static void append_in_batches(void) {
    static Sequence *seqs[SEQUENCES];
    static int data[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        seqs[i] = plain_find(engine, i);
        data[i] = -i;
    }
    CHECK(append_kv_batch(engine, seqs, data, SEQUENCES) == 0);
    for (int i = 0; i < SEQUENCES; i++) {
        CHECK(record_at(engine, seqs[i], seqs[i]->kv_count - 1) == -i);
    }
    int before = seqs[3]->kv_count;
    CHECK(append_kv_run(engine, seqs[3], data, SEQUENCES) == 0);
    for (int i = 0; i < SEQUENCES; i++) {
        CHECK(record_at(engine, seqs[3], before + i) == -i);
    }
    CHECK(append_kv_run(engine, seqs[3], data, 0) == -1);
    seqs[7] = NULL;
    CHECK(append_kv_batch(engine, seqs, data, SEQUENCES) == -1);
}
#endif

int main(void) {
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    for (int id = 0; id < SEQUENCES / 2; id++) {
        CHECK(create_sequence(engine, id, 1 + id % 40) != NULL);
    }
    for (int id = SEQUENCES / 2; id < SEQUENCES; id++) {
        CHECK(fork_sequence(engine, id - SEQUENCES / 2, id) != NULL);
    }
    append_to_all(5);
#ifdef WITH_EXT
    append_in_batches();
#endif
    check_conserved(engine);
    for (int i = 0; i < SEQUENCES; i += 2) {
        CHECK(free_sequence(engine, i * 7 % SEQUENCES) == 0);
    }
    for (int i = 0; i < SEQUENCES; i += 2) {
        CHECK(append_kv(engine, i * 7 % SEQUENCES, 1) == -1);
        CHECK(create_sequence(engine, i * 7 % SEQUENCES, 3) != NULL);
    }
    append_to_all(2);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
    puts("many: as expected");
    return 0;
}

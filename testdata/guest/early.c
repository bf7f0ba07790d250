/*
 * early - calls before main, in constructors, one of the first priority that a program
 * may have. Linked in front of the library, whose own constructors then are not the
 * first in line.
 */
#include "check.h"

static int pool[64 * KV_PER_BLOCK];
static LLMEngine *engine;

__attribute__((constructor(101))) static void begin(void) {
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 1, 19) != NULL);
}

__attribute__((constructor)) static void go_on(void) { CHECK(append_kv(engine, 1, 6) == 0); }

int main(void) {
    CHECK(append_kv(engine, 1, 7) == 0 && record_at(engine, sequence_at(engine->active_seqs.next), 20) == 7);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

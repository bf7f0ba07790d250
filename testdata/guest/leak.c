/*
 * leak SEQUENCES - loses an engine with SEQUENCES sequences, as a faulty host
 * would, and ends: Valgrind must still say so.
 */
#include "check.h"

static int pool[1024 * KV_PER_BLOCK];

/* Not inlined, and its stack overwritten, so that main keeps no pointer. */
__attribute__((noinline)) static void lose(int sequences) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    for (int i = 0; i < sequences; i++) {
        CHECK(create_sequence(engine, i, 1) != NULL);
    }
    for (int i = 0; i < sequences; i++) {
        CHECK(append_kv(engine, i, i) == 0);
    }
}

__attribute__((noinline)) static void overwrite(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; i++) {
        stack[i] = 0;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    lose(atoi(argv[1]));
    overwrite();
    return 0;
}

/* overflow - a host that writes after its own heap memory between calls: AddressSanitizer must say so. */
#include "check.h"

static int pool[8 * KV_PER_BLOCK];

int main(void) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 1, 1) != NULL);
    volatile size_t size = 24; /* volatile, or the compiler already refuses */
    char *mine = malloc(size);
    CHECK(mine != NULL && append_kv(engine, 1, 1) == 0);
    mine[size] = 1;
    CHECK(append_kv(engine, 1, mine[0]) == 0);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

/* inspected - a student's program under a debugger: it is stepped through, and its fields are printed. */
#include "check.h"

static int pool[8 * KV_PER_BLOCK];

int main(void) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    Sequence *first = create_sequence(engine, 41, 20);
    Sequence *seq = create_sequence(engine, 42, 20);
    CHECK(first != NULL && seq != NULL);
    CHECK(append_kv(engine, 42, 4711) == 0);
    CHECK(llm_destroy(engine) == 0);
    puts("inspected: done");
    return 0;
}

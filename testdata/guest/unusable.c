/* unusable - a program whose library is nowhere: every call fails, and it can go on. */
#include "check.h"

static int pool[8 * KV_PER_BLOCK];

int main(void) {
    LLMEngine engine = {0};
    for (int i = 0; i < 2; i++) {
        CHECK(llm_init(pool, sizeof pool) == NULL);
        CHECK(create_sequence(&engine, 1, 1) == NULL && fork_sequence(&engine, 1, 2) == NULL);
        CHECK(append_kv(&engine, 1, 1) == -1 && free_sequence(&engine, 1) == -1 && llm_destroy(&engine) == -1);
    }
    return 0;
}

/*
 * footprint - what the library costs in memory: below 8 MB over the program's
 * own when it comes, and flat over a million sequences made and freed.
 */
#include "check.h"

void load_library(void);

enum { KB_AT_MOST = 8 << 10, GROWTH_KB_AT_MOST = 1 << 10, BLOCKS = 1024 };

static int pool[BLOCKS * KV_PER_BLOCK];

static long resident_kb(void) {
    char line[128];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (kb < 0 && fgets(line, sizeof line, status) != NULL) {
        sscanf(line, "VmRSS: %ld", &kb);
    }
    fclose(status);
    CHECK(kb > 0);
    return kb;
}

static void make_and_free(LLMEngine *engine, int n) {
    for (int i = 0; i < n; i++) {
        CHECK(create_sequence(engine, 1000 + i, 1 + i % 300) != NULL);
        CHECK(append_kv(engine, 1000 + i, i) == 0);
        CHECK(free_sequence(engine, 1000 + i) == 0);
    }
}

int main(void) {
    memset(pool, 1, sizeof pool);
    long alone = resident_kb();
    load_library();
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    make_and_free(engine, 10000);
    long with = resident_kb();
    make_and_free(engine, 900000);
    for (int id = 0; id < 20; id++) { /* so that the rest lies after the walked nodes */
        CHECK(create_sequence(engine, id, 1) != NULL);
    }
    make_and_free(engine, 100000);
    long after = resident_kb();
    printf("alone %ld KB, with the library %ld KB, after a million %ld KB\n", alone, with, after);
    CHECK(with - alone < KB_AT_MOST);
    CHECK(after - with < GROWTH_KB_AT_MOST);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

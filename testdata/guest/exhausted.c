/*
 * exhausted - malloc, calloc and free are the program's own here, so it can
 * make the n-th allocation of a call fail, for every n: the call is refused,
 * nothing has changed, nothing is lost. The counts also show that a call that
 * is refused for another reason allocates nothing, and that a sequence is
 * 2 allocations and one for each L2 table.
 */
#include <stdint.h>

#include "check.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void __libc_free(void *p);

static struct {
    int on;
    int made, freed; /* since on */
    int fail;        /* the number of the allocation that fails, 0 for none */
    int failed;
} heap;

static int refuse(void) {
    if (!heap.on) {
        return 0;
    }
    if (heap.made + heap.failed + 1 == heap.fail) {
        heap.failed++;
        return 1;
    }
    heap.made++;
    return 0;
}

void *malloc(size_t size) { return refuse() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return refuse() ? NULL : __libc_calloc(n, size); }
void free(void *p) {
    heap.freed += heap.on && p != NULL;
    __libc_free(p);
}

enum { BLOCKS = 300 };

static int pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *engine;
static Sequence *seqs[4];
static int data[1024];

/* A call to make; returns whether it succeeded. */
typedef int call(void);

static int do_init(void) {
    LLMEngine *other = llm_init(pool, sizeof pool);
    if (other == NULL) {
        return 0;
    }
    int on = heap.on;
    heap.on = 0;
    CHECK(llm_destroy(other) == 0);
    heap.on = on;
    return 1;
}
static int do_create_1(void) { return create_sequence(engine, 100, 1) != NULL; }
static int do_create_40(void) { return create_sequence(engine, 101, 40 * KV_PER_BLOCK) != NULL; }
static int do_fork_40(void) { return fork_sequence(engine, 101, 102) != NULL; }
static int do_append_in_place(void) { return append_kv(engine, 1, 5) == 0; }
static int do_append_copy(void) { return append_kv(engine, 2, 5) == 0; }
static int do_append_table(void) { return append_kv(engine, 3, 5) == 0; }

static int refused_create(void) {
    return create_sequence(engine, 1, 1) != NULL || create_sequence(engine, 200, 0) != NULL ||
           create_sequence(engine, 200, 257 * KV_PER_BLOCK) != NULL || create_sequence(NULL, 200, 1) != NULL ||
           create_sequence(engine, 200, (engine->free_local_blocks + 1) * KV_PER_BLOCK) != NULL;
}
static int refused_rest(void) {
    return fork_sequence(engine, 200, 201) != NULL || fork_sequence(engine, 1, 2) != NULL ||
           append_kv(engine, 200, 1) == 0 || free_sequence(engine, 200) == 0 || llm_init(NULL, 640) != NULL ||
           llm_init(pool, 63) != NULL || llm_init(pool, SIZE_MAX) != NULL || llm_destroy(NULL) == 0;
}

#ifdef WITH_EXT
static int do_run(void) { return append_kv_run(engine, seqs[0], data, 600) == 0; }
static int do_batch(void) { return append_kv_batch(engine, seqs, data, 4) == 0; }
#endif

static int step(call *make, int fail) {
    memset(&heap, 0, sizeof heap);
    heap.fail = fail;
    heap.on = 1;
    int ok = make();
    heap.on = 0;
    return ok;
}

/* Makes each allocation of the call fail in turn, then lets it succeed. */
static void exhaust(call *make, int allocations) {
    static struct picture before, after;
    look_at(&before, engine, pool, sizeof pool);
    for (int fail = 1; fail <= allocations; fail++) {
        CHECK(!step(make, fail));
        CHECK(heap.failed == 1 && heap.made == heap.freed);
        look_at(&after, engine, pool, sizeof pool);
        CHECK(same(&before, &after));
    }
    CHECK(step(make, allocations + 1));
    CHECK(heap.made == allocations && heap.freed == 0 && heap.failed == 0);
    check_conserved(engine);
}

static void refused(call *make) {
    static struct picture before, after;
    look_at(&before, engine, pool, sizeof pool);
    CHECK(!step(make, 0));
    CHECK(heap.made == 0 && heap.freed == 0);
    look_at(&after, engine, pool, sizeof pool);
    CHECK(same(&before, &after));
}

static int frees(int id) {
    memset(&heap, 0, sizeof heap);
    heap.on = 1;
    CHECK(free_sequence(engine, id) == 0);
    heap.on = 0;
    CHECK(heap.made == 0);
    return heap.freed;
}

int main(void) {
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    CHECK(create_sequence(engine, 1, 3) != NULL && create_sequence(engine, 9, 20) != NULL);
    CHECK(fork_sequence(engine, 9, 2) != NULL);
    CHECK(create_sequence(engine, 3, 16 * KV_PER_BLOCK) != NULL);
    exhaust(do_init, 2);
    exhaust(do_create_1, 3);
    exhaust(do_create_40, 5);
    exhaust(do_fork_40, 5);
    exhaust(do_append_in_place, 0);
    exhaust(do_append_copy, 0);
    exhaust(do_append_table, 1);
    CHECK(frees(102) == 5 && frees(101) == 5 && frees(100) == 3);
    seqs[0] = plain_find(engine, 1);
    seqs[3] = seqs[0];
    for (int i = 1; i < 3; i++) {
        seqs[i] = create_sequence(engine, 300 + i, 16 * KV_PER_BLOCK);
        CHECK(seqs[i] != NULL);
    }
    data[0] = 1;
#ifdef WITH_EXT
    exhaust(do_run, 2);
    exhaust(do_batch, 2);
#endif
    refused(refused_create);
    refused(refused_rest);

    int more = 0;
    while (create_sequence(engine, 1000 + more, 1) != NULL && more < 60) {
        more++; /* beyond the nodes that are always walked */
    }
    CHECK(more > 20);
    refused(refused_rest);
    memset(&heap, 0, sizeof heap);
    heap.on = 1;
    int allocations = 2; /* the engine and its counts */
    for (const struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next) {
        allocations += 2;
        for (int i = 0; i < L1_PT_SIZE; i++) {
            allocations += sequence_at(n)->block_table[i] != NULL;
        }
    }
    CHECK(llm_destroy(engine) == 0);
    heap.on = 0;
    CHECK(heap.freed == allocations && heap.made == 0);
    return 0;
}

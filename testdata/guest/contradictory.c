/*
 * contradictory - states that no sequence of calls leads to, as a tester may
 * write them: a call follows the plain algorithm where that is defined, and is
 * refused with nothing changed where it is not; when freeing, what cannot be a
 * block is skipped. Nothing crashes.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdint.h>
#include <sys/mman.h>

#include "check.h"

enum { BLOCKS = 32 };

static int pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *engine;
static Sequence *seq; /* id 1, 17 records: blocks 0 and 1 */

static void fresh(void) {
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    CHECK((seq = create_sequence(engine, 1, 17)) != NULL);
}

/* Makes every call that would write; all must be refused and change nothing. */
enum { CREATE = 1, FORK = 2, APPEND = 4, FREE = 8 };

static void refused(int calls) {
    static struct picture before, after;
    look_at(&before, engine, pool, sizeof pool);
    CHECK(!(calls & CREATE) || create_sequence(engine, 2, 1) == NULL);
    CHECK(!(calls & FORK) || fork_sequence(engine, 1, 2) == NULL);
    CHECK(!(calls & APPEND) || append_kv(engine, 1, 4711) == -1);
#ifdef WITH_EXT
    Sequence *const batch[] = {seq, seq};
    CHECK(!(calls & APPEND) || append_kv_batch(engine, batch, (const int[]){1, 2}, 2) == -1);
    CHECK(!(calls & APPEND) || append_kv_run(engine, seq, (const int[]){1, 2}, 2) == -1);
#endif
    CHECK(!(calls & FREE) || free_sequence(engine, 1) == -1);
    look_at(&after, engine, pool, sizeof pool);
    CHECK(same(&before, &after));
}

static void counts_below_one_are_exclusive(void) {
    const int counts[] = {0, -5, INT_MIN};
    for (int i = 0; i < 3; i++) {
        fresh();
        engine->ref_count[1] = counts[i];
        int free_blocks = engine->free_local_blocks;
        CHECK(append_kv(engine, 1, 88 + i) == 0);
        CHECK(seq->block_table[0][1] == 1 && engine->ref_count[1] == counts[i]);
        CHECK(pool[KV_PER_BLOCK + 1] == 88 + i && engine->free_local_blocks == free_blocks);
        CHECK(llm_destroy(engine) == 0);
    }
}

static void promised_blocks_do_not_exist(void) {
    fresh();
    for (int i = 0; i < BLOCKS; i++) {
        engine->ref_count[i] += 1; /* so that block 1 is shared, and none is free */
    }
    CHECK(engine->free_local_blocks > 0);
    refused(CREATE | APPEND);
    engine->free_local_blocks = INT_MAX;
    refused(CREATE | APPEND);
    seq->kv_count = 32; /* the next block is unmapped */
    refused(CREATE | APPEND);
    seq->kv_count = 256; /* the next table is missing */
    refused(CREATE | APPEND);
    engine->free_local_blocks = 0;
    refused(CREATE | APPEND);
    CHECK(llm_destroy(engine) == 0);
}

static void positions_that_are_none(void) {
    const int positions[] = {-1, INT_MIN, MAX_LOGICAL_BLOCKS * KV_PER_BLOCK, INT_MAX};
    for (int i = 0; i < 4; i++) {
        fresh();
        seq->kv_count = positions[i];
        refused(APPEND);
        CHECK(fork_sequence(engine, 1, 2) != NULL && free_sequence(engine, 1) == 0 && free_sequence(engine, 2) == 0);
        CHECK(engine->free_local_blocks == BLOCKS);
        CHECK(llm_destroy(engine) == 0);
    }
}

static void entries_that_name_no_block(void) {
    const int entries[] = {BLOCKS, INT_MAX, -2, INT_MIN};
    for (int i = 0; i < 4; i++) {
        fresh();
        seq->block_table[0][1] = entries[i];
        refused(FORK | APPEND);
        CHECK(free_sequence(engine, 1) == 0);
        CHECK(engine->ref_count[0] == 0 && engine->ref_count[1] == 1);
        CHECK(engine->free_local_blocks == BLOCKS - 1);
        CHECK(llm_destroy(engine) == 0);
    }
}

static void pointers_that_are_null(void) {
    fresh();
    int **table = seq->block_table;
    seq->block_table = NULL;
    refused(FORK | APPEND);
    CHECK(free_sequence(engine, 1) == 0);
    free(table[0]);
    free(table);
    CHECK(llm_destroy(engine) == 0);

    fresh();
    free(engine->ref_count);
    engine->ref_count = NULL;
    refused(CREATE | FORK | APPEND);
    CHECK(free_sequence(engine, 1) == 0 && engine->free_local_blocks == BLOCKS - 2);
    CHECK(llm_destroy(engine) == 0);

    fresh();
    engine->pool_base_ptr = NULL;
    refused(APPEND);
    CHECK(fork_sequence(engine, 1, 2) != NULL && create_sequence(engine, 3, 1) != NULL);
    CHECK(free_sequence(engine, 1) == 0);
    CHECK(llm_destroy(engine) == 0);
}

static void links_that_are_null(void) {
    fresh();
    engine->active_seqs.prev = NULL;
    refused(CREATE | FORK);
    CHECK(append_kv(engine, 1, 1) == 0);
    CHECK(llm_destroy(engine) == 0);

    fresh();
    seq->node.next = NULL; /* the list ends here; 1 is still in it */
    refused(FREE);
    CHECK(append_kv(engine, 1, 1) == 0 && append_kv(engine, 2, 1) == -1);
    CHECK(llm_destroy(engine) == 0);

    fresh();
    seq->node.prev = NULL;
    refused(FREE);
    CHECK(append_kv(engine, 1, 1) == 0);
    CHECK(llm_destroy(engine) == 0);

    fresh();
    engine->active_seqs.next = NULL; /* the sequence is lost to every call */
    CHECK(append_kv(engine, 1, 1) == -1 && free_sequence(engine, 1) == -1 && fork_sequence(engine, 1, 2) == NULL);
    CHECK(llm_destroy(engine) == 0);
    free(seq->block_table[0]);
    free(seq->block_table);
    free(seq);
}

static void a_pool_of_less_than_nothing(void) {
    const int totals[] = {0, -1, INT_MIN};
    for (int i = 0; i < 3; i++) {
        fresh();
        engine->total_local_blocks = totals[i];
        refused(CREATE | FORK | APPEND);
        CHECK(free_sequence(engine, 1) == 0);
        CHECK(llm_destroy(engine) == 0);
    }
}

static void sizes_at_the_limits(void) {
    CHECK(llm_init(pool, ((size_t)INT_MAX + 1) * BLOCK_SIZE) == NULL);
    CHECK(llm_init(pool, SIZE_MAX) == NULL && llm_init(pool, (size_t)1 << 63) == NULL);
    CHECK(llm_init(pool, 0) == NULL && llm_init(pool, BLOCK_SIZE - 1) == NULL);
    fresh();
    const int lengths[] = {INT_MAX, INT_MAX - 1, INT_MAX - 14, INT_MAX - 15, INT_MAX - 16, 0, -1, INT_MIN, 4097};
    static struct picture before, after;
    look_at(&before, engine, pool, sizeof pool);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        engine->free_local_blocks = INT_MAX;
        CHECK(create_sequence(engine, 2, lengths[i]) == NULL);
    }
    engine->free_local_blocks = BLOCKS - 2;
    look_at(&after, engine, pool, sizeof pool);
    CHECK(same(&before, &after));
    CHECK(llm_destroy(engine) == 0);
}

static void every_int_is_an_id(void) {
    const int ids[] = {0, -1, INT_MAX, INT_MIN, INT_MIN + 1, 65536, -65536};
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        CHECK(append_kv(engine, ids[i], 1) == -1 && free_sequence(engine, ids[i]) == -1);
        CHECK(create_sequence(engine, ids[i], 1) != NULL && create_sequence(engine, ids[i], 1) == NULL);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(fork_sequence(engine, -1, 1000 + i) != NULL); /* so that ids lie after the walked nodes, too */
    }
    CHECK(fork_sequence(engine, 0, -7) != NULL && append_kv(engine, -7, 1) == 0 && append_kv(engine, -7, 1) == 0);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        CHECK(append_kv(engine, ids[i], 1) == 0 && free_sequence(engine, ids[i]) == 0);
        CHECK(append_kv(engine, ids[i], 1) == -1);
    }
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
}

/* An offset of more than INT_MAX bytes into the pool, of which two pages are touched. */
static void a_block_behind_two_gibibytes(void) {
    const size_t blocks = ((size_t)1 << 25) + 2;
    int *large = mmap(NULL, blocks * BLOCK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(large != MAP_FAILED);
    LLMEngine *wide = llm_init(large, blocks * BLOCK_SIZE);
    CHECK(wide != NULL);
    Sequence *far = create_sequence(wide, 1, 1);
    CHECK(far != NULL && far->block_table[0][0] == 0);
    far->block_table[0][0] = (int)blocks - 1;
    wide->ref_count[0] = 0;
    wide->ref_count[blocks - 1] = 1;
    CHECK(append_kv(wide, 1, 4711) == 0 && large[(blocks - 1) * KV_PER_BLOCK + 1] == 4711);
    CHECK(llm_destroy(wide) == 0);
    CHECK(munmap(large, blocks * BLOCK_SIZE) == 0);
}

int main(int argc, char **argv) {
    (void)argv;
    counts_below_one_are_exclusive();
    promised_blocks_do_not_exist();
    positions_that_are_none();
    entries_that_name_no_block();
    pointers_that_are_null();
    links_that_are_null();
    a_pool_of_less_than_nothing();
    sizes_at_the_limits();
    every_int_is_an_id();
    if (argc == 1) {
        a_block_behind_two_gibibytes(); /* too large for Memcheck's patience */
    }
    return 0;
}

//go:build ignore

/*
 * What the compiler can check: that a submission was built against a header with
 * the handout's offsets.
 */
#include "api.h"
#include "check.h"

#define AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), #type "." #member " is not at " #offset)

AT(Sequence, seq_id, 0);
AT(Sequence, block_table, 8);
AT(Sequence, kv_count, 16);
AT(Sequence, node, 24);
_Static_assert(sizeof(Sequence) == 40, "Sequence is not 40 bytes");

AT(LLMEngine, pool_base_ptr, 0);
AT(LLMEngine, total_local_blocks, 8);
AT(LLMEngine, free_local_blocks, 12);
AT(LLMEngine, ref_count, 16);
AT(LLMEngine, active_seqs, 24);
_Static_assert(sizeof(LLMEngine) == 40, "LLMEngine is not 40 bytes");

_Static_assert(BLOCK_SIZE == 64, "BLOCK_SIZE is not 64");
_Static_assert(KV_SIZE == 4 && KV_SIZE == sizeof(int), "KV_SIZE is not that of an int, 4");
_Static_assert(KV_PER_BLOCK == 16, "KV_PER_BLOCK is not 16");
_Static_assert(L1_PT_SIZE == 16, "L1_PT_SIZE is not 16");
_Static_assert(L2_PT_SIZE == 16, "L2_PT_SIZE is not 16");
_Static_assert(MAX_LOGICAL_BLOCKS == 256, "MAX_LOGICAL_BLOCKS is not 256");

static LLMEngine *(*const init)(void *, size_t) = watched_llm_init;
static Sequence *(*const create)(LLMEngine *, int, int) = watched_create_sequence;
static Sequence *(*const branch)(LLMEngine *, int, int) = watched_fork_sequence;
static int (*const append)(LLMEngine *, int, int) = watched_append_kv;
static int (*const drop)(LLMEngine *, int) = watched_free_sequence;
static int (*const destroy)(LLMEngine *) = watched_llm_destroy;

TEST(layout_all_six_functions_work_together, "Implement the following APIs in llm_memory.c.") {
    static int pool[2 * KV_PER_BLOCK];
    LLMEngine *engine = init(pool, sizeof pool);
    CHECK(engine != NULL);
    CHECK(create(engine, 1, 1) != NULL);
    CHECK(branch(engine, 1, 2) != NULL);
    CHECK_INT(append(engine, 2, 3), 0);
    CHECK_INT(pool[KV_PER_BLOCK + 1], 3);
    CHECK_INT(drop(engine, 1), 0);
    CHECK_INT(destroy(engine), 0);
}

const struct test layout_tests[] = {
    LISTED(layout_all_six_functions_work_together),
    END_OF_LIST,
};

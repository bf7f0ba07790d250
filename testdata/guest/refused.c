/*
 * refused - every reason for which a call can be refused. Prints a line for each: the function, and what
 * llm_last_error says. With -DFAILING the program's own malloc fails as well.
 */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"
#include "llm_memory_ext.h"

enum { BLOCKS = 300 };

static int pool[BLOCKS * KV_PER_BLOCK];

#ifdef FAILING
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
static int fail;
void *malloc(size_t size) { return fail ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fail ? NULL : __libc_calloc(n, size); }
#endif

static void refused(const char *function, int was_refused) {
    CHECK(was_refused);
    printf("%s: %s\n", function, llm_last_error());
}

static void *other_thread(void *engine) {
    CHECK(llm_last_error() == NULL);
    CHECK(free_sequence(engine, 12345) == -1);
    CHECK(strstr(llm_last_error(), "no sequence has this id") != NULL);
    return NULL;
}

int main(void) {
    CHECK(llm_last_error() == NULL);
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && llm_last_error() == NULL);
    int data[4] = {1, 2, 3, 4};

    refused("llm_init", llm_init(NULL, sizeof pool) == NULL);
    refused("llm_init", llm_init(pool, BLOCK_SIZE - 1) == NULL);
    refused("llm_init", llm_init(pool, SIZE_MAX) == NULL);

    refused("create_sequence", create_sequence(NULL, 1, 1) == NULL);
    refused("create_sequence", create_sequence(engine, 1, 0) == NULL);
    CHECK(create_sequence(engine, 1, 256 * KV_PER_BLOCK) != NULL);
    refused("create_sequence", create_sequence(engine, 1, 1) == NULL);
    refused("create_sequence", create_sequence(engine, 2, INT_MAX) == NULL);
    refused("create_sequence", create_sequence(engine, 2, 45 * KV_PER_BLOCK) == NULL);

    refused("fork_sequence", fork_sequence(NULL, 1, 2) == NULL);
    refused("fork_sequence", fork_sequence(engine, 1, 1) == NULL);
    refused("fork_sequence", fork_sequence(engine, 7, 2) == NULL);

    Sequence *full = plain_find(engine, 1);
    refused("append_kv", append_kv(NULL, 1, 1) == -1);
    refused("append_kv", append_kv(engine, 7, 1) == -1);
    refused("append_kv", append_kv(engine, 1, 1) == -1);
    refused("append_kv_batch", append_kv_batch(engine, &full, data, 1) == -1);
    refused("append_kv_run", append_kv_run(engine, full, data, 1) == -1);
    Sequence *aligned = create_sequence(engine, 3, 44 * KV_PER_BLOCK);
    CHECK(aligned != NULL && engine->free_local_blocks == 0);
    refused("append_kv", append_kv(engine, 3, 1) == -1);
    refused("append_kv_batch", append_kv_batch(engine, &aligned, data, 1) == -1);
    refused("append_kv_run", append_kv_run(engine, aligned, data, 4) == -1);
    refused("append_kv_batch", append_kv_batch(engine, NULL, data, 1) == -1);
    refused("append_kv_run", append_kv_run(engine, aligned, data, 0) == -1);
    refused("append_kv_batch", append_kv_batch(NULL, &full, data, 1) == -1);
    refused("append_kv_run", append_kv_run(NULL, full, data, 1) == -1);

    aligned->kv_count = -1;
    refused("append_kv", append_kv(engine, 3, 1) == -1);
    aligned->kv_count = 44 * KV_PER_BLOCK;

    refused("free_sequence", free_sequence(NULL, 1) == -1);
    refused("free_sequence", free_sequence(engine, 7) == -1);
    refused("llm_destroy", llm_destroy(NULL) == -1);

#ifdef FAILING
    CHECK(free_sequence(engine, 3) == 0);
    fail = 1;
    int is_refused = create_sequence(engine, 4, 1) == NULL;
    fail = 0;
    refused("create_sequence", is_refused);
    CHECK(create_sequence(engine, 4, 1) != NULL && strstr(llm_last_error(), "malloc") != NULL);
#endif

    const char *mine = llm_last_error();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, engine) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(llm_last_error() == mine);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

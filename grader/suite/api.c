//go:build ignore

#define API_PLAIN
#include "api.h"

#include <stdlib.h>

#include "heap.h"

static void watch(bool on) {
    if (heap_watch != NULL) {
        heap_watch(on);
    }
}

LLMEngine *watched_llm_init(void *pool_addr, size_t pool_size) {
    watch(true);
    LLMEngine *engine = llm_init(pool_addr, pool_size);
    watch(false);
    return engine;
}

Sequence *watched_create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    watch(true);
    Sequence *seq = create_sequence(engine, seq_id, initial_kv_len);
    watch(false);
    return seq;
}

Sequence *watched_fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    watch(true);
    Sequence *seq = fork_sequence(engine, parent_seq_id, new_seq_id);
    watch(false);
    return seq;
}

int watched_append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    watch(true);
    int status = append_kv(engine, seq_id, kv_data);
    watch(false);
    return status;
}

int watched_free_sequence(LLMEngine *engine, int seq_id) {
    watch(true);
    int status = free_sequence(engine, seq_id);
    watch(false);
    return status;
}

int watched_llm_destroy(LLMEngine *engine) {
    watch(true);
    int status = llm_destroy(engine);
    watch(false);
    return status;
}

void *watched_malloc(size_t size) {
    watch(true);
    void *p = malloc(size);
    watch(false);
    return p;
}

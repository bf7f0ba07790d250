/*
 * api.h - the tests call the six functions through wrappers, which notify heap.c of each
 * call if heap.c is linked. The functions keep their names, so that a failure shows a call
 * as the handout spells it.
 */
#ifndef API_H
#define API_H

#include "llm_memory.h"

LLMEngine *watched_llm_init(void *pool_addr, size_t pool_size);
Sequence *watched_create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len);
Sequence *watched_fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id);
int watched_append_kv(LLMEngine *engine, int seq_id, int kv_data);
int watched_free_sequence(LLMEngine *engine, int seq_id);
int watched_llm_destroy(LLMEngine *engine);

/* Allocates a table that a test passes to the code under test. */
void *watched_malloc(size_t size);

#ifndef API_PLAIN
#define llm_init(pool_addr, pool_size) watched_llm_init(pool_addr, pool_size)
#define create_sequence(engine, seq_id, initial_kv_len) watched_create_sequence(engine, seq_id, initial_kv_len)
#define fork_sequence(engine, parent, child) watched_fork_sequence(engine, parent, child)
#define append_kv(engine, seq_id, kv_data) watched_append_kv(engine, seq_id, kv_data)
#define free_sequence(engine, seq_id) watched_free_sequence(engine, seq_id)
#define llm_destroy(engine) watched_llm_destroy(engine)
#endif

#endif

/* Functions that replace those that a submission does not define. They refuse every call. */
#include "llm_memory.h"

#ifdef missing_append_kv
int append_kv(LLMEngine *engine, int seq_id, int kv_data) { return -1; }
#endif
#ifdef missing_create_sequence
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) { return NULL; }
#endif
#ifdef missing_fork_sequence
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) { return NULL; }
#endif
#ifdef missing_free_sequence
int free_sequence(LLMEngine *engine, int seq_id) { return -1; }
#endif
#ifdef missing_llm_destroy
int llm_destroy(LLMEngine *engine) { return -1; }
#endif
#ifdef missing_llm_init
LLMEngine *llm_init(void *pool_addr, size_t pool_size) { return NULL; }
#endif

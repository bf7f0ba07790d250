/*
 * llm_memory_ext.h - batch calls on an engine of llm_memory.h, for programs that
 * decode many sequences at once, and the reason of a refused call. The homework
 * does not have them.
 *
 * Both batch calls are all or nothing. If the single calls of append_kv would all have succeeded,
 * one after the other, the result equals theirs: the same blocks, counts and
 * pool bytes. Otherwise they return -1 and nothing has changed.
 */
#ifndef LLM_MEMORY_EXT_H
#define LLM_MEMORY_EXT_H

#include "llm_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Appends kv_data[i] to seqs[i], for each i below n. The sequences are given by
 * pointer, so nothing is looked up; each must be alive and belong to engine. A sequence
 * may come more than once. Returns 0, or -1 if a pointer is NULL, n <= 0, one of the
 * n appends would have failed, or memory is out.
 */
int append_kv_batch(LLMEngine *engine, Sequence *const *seqs, const int *kv_data, int n);

/*
 * Appends n records to one sequence, kv_data[0] first. Returns 0, or -1 if a pointer is
 * NULL, n <= 0, one of the n appends would have failed, or memory is out.
 */
int append_kv_run(LLMEngine *engine, Sequence *seq, const int *kv_data, int n);

/*
 * Why the last call of this thread that returned NULL or -1 was refused: a reason, and
 * the handout's sentence where it has one. NULL if none was refused. A call that
 * succeeds does not change it. The string is never freed.
 *
 * With LLM_MEMORY_DEBUG=1 in the environment, the library writes a line to stderr for
 * each refused call: function, arguments and this reason.
 */
const char *llm_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* LLM_MEMORY_EXT_H */

/* Declarations for the Go files, besides the public headers. */
#ifndef LLM_TRANSLATE_H
#define LLM_TRANSLATE_H

#include "llm_memory_ext.h"

/* cgo has no const: with these types its prototypes equal those of llm_memory_ext.h. */
typedef Sequence *const llm_sequence_in;
typedef const int llm_record_in;

/* course.Chunk: malloc(size), or calloc(size, 1) where zero is not 0. */
struct llm_chunk {
    size_t size;
    size_t zero;
    void *at;
};

/* The functions, and course's errors. */
enum llm_function { LLM_INIT, LLM_CREATE, LLM_FORK, LLM_APPEND, LLM_FREE, LLM_DESTROY, LLM_BATCH, LLM_RUN, LLM_FUNCTIONS };
enum llm_reason {
    LLM_CORRUPT,
    LLM_NULL_ENGINE,
    LLM_POOL,
    LLM_LENGTH,
    LLM_EXISTS,
    LLM_NOT_FOUND,
    LLM_CAPACITY,
    LLM_NO_BLOCKS,
    LLM_NO_MEMORY,
    LLM_ARGUMENT,
    LLM_REASONS
};

/*
 * Notes why a call was refused (enum llm_function, enum llm_reason), and writes a line to stderr if
 * LLM_MEMORY_DEBUG is 1. The pointers and numbers are the call's arguments, in order.
 */
void llm_refused(int function, int reason, const void *first, const void *second, long a, long b);

/* Allocates n chunks. If one fails, allocates none, sets each at to NULL, and returns 0. */
int llm_heap_get(struct llm_chunk *chunks, size_t n);

/* Frees the chain of chunks that starts at first, linked by their first words, and then single. */
void llm_heap_put(void *first, void *single);

#endif

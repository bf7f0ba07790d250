/* What exports.go and heap.go say to C, beyond the public headers. */
#ifndef LLM_TRANSLATE_H
#define LLM_TRANSLATE_H

#include "llm_memory_ext.h"

/* cgo has no const: these make its prototypes equal those of llm_memory_ext.h. */
typedef Sequence *const llm_sequence_in;
typedef const int llm_record_in;

/* course.Chunk: malloc(size), or calloc(size, 1) where zero is not 0. */
struct llm_chunk {
    size_t size;
    size_t zero;
    void *at;
};

/* All n chunks or none: 0, with every at NULL. */
int llm_heap_get(struct llm_chunk *chunks, size_t n);

/* Frees a chain linked by first words, and then single. */
void llm_heap_put(void *first, void *single);

#endif

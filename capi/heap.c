/*
 * C's heap for course.Memory. It allocates everything that a call needs at once.
 * Unlike cgo's C.malloc, it does not end the process when memory runs out.
 */
#include <stdlib.h>

#include "translate.h"

int llm_heap_get(struct llm_chunk *chunks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        chunks[i].at = chunks[i].zero ? calloc(chunks[i].size, 1) : malloc(chunks[i].size);
        if (chunks[i].at == NULL) {
            while (i > 0) {
                i--;
                free(chunks[i].at);
                chunks[i].at = NULL;
            }
            return 0;
        }
    }
    return 1;
}

void llm_heap_put(void *first, void *single) {
    while (first != NULL) {
        void *next = *(void **)first;
        free(first);
        first = next;
    }
    free(single);
}

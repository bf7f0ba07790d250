#include "llm_memory.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct submission {
    const char *id;
    LLMEngine *(*init)(void *, size_t);
    Sequence *(*create)(LLMEngine *, int, int);
    int (*release)(LLMEngine *, int);
    Sequence *(*fork)(LLMEngine *, int, int);
    int (*append)(LLMEngine *, int, int);
    int (*destroy)(LLMEngine *);
};

/*
 * Why a call was refused: a sentence for each of course's errors, with the handout's sentence where it
 * has one. The last one of a thread is in the thread's record (calls.c). With LLM_MEMORY_DEBUG=1 in the
 * environment each one is written to stderr.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"
#include "translate.h"

#define NULL_ENGINE "engine is NULL. Handout: \"Any API receiving LLMEngine *engine MUST check if engine == NULL on " \
                    "its first line. If true, return NULL or -1.\""
#define NO_MEMORY "malloc returned NULL."
#define CORRUPT "the structs contradict each other: a count, a link, a table or a block id that the library reads is " \
                "not possible."
#define CREATE_REFUSES " Handout: \"Return NULL if initial_kv_len <= 0 or if seq_id already exists.\""
#define CREATE_PROBES " Handout: \"If required blocks exceed 256 OR exceed free_local_blocks, return NULL " \
                      "immediately.\""
#define FORK_IDS " Handout: \"Ensure the parent exists and new_seq_id is globally unique.\""
#define APPEND_FULL "the next record would need a logical block beyond the last of 256. Handout: \"Return -1 if " \
                    "logical_idx >= 256.\""
#define APPEND_PROBES "a new block is required and no block is free. Handout: \"If a new block is required but " \
                      "free_local_blocks == 0, return -1 immediately without modifying any states.\""
#define ARGUMENT "a pointer is NULL or n is not positive (llm_memory_ext.h)."

static const char *const sentences[LLM_FUNCTIONS][LLM_REASONS] = {
    [LLM_INIT] = {[LLM_POOL] = "the pool is NULL, has less than one block, or has more than INT_MAX blocks. Handout: "
                               "\"Return NULL if pool_addr == NULL or pool_size < BLOCK_SIZE.\""},
    [LLM_CREATE] = {[LLM_LENGTH] = "initial_kv_len is not positive." CREATE_REFUSES,
                    [LLM_EXISTS] = "a sequence with this id exists." CREATE_REFUSES,
                    [LLM_CAPACITY] = "the records need more than 256 blocks." CREATE_PROBES,
                    [LLM_NO_BLOCKS] = "the records need more blocks than are free." CREATE_PROBES},
    [LLM_FORK] = {[LLM_EXISTS] = "a sequence with the new id exists." FORK_IDS,
                  [LLM_NOT_FOUND] = "no sequence has the parent's id." FORK_IDS},
    [LLM_APPEND] = {[LLM_NOT_FOUND] = "no sequence has this id. Handout: \"Find the sequence.\"",
                    [LLM_CAPACITY] = APPEND_FULL,
                    [LLM_NO_BLOCKS] = APPEND_PROBES},
    [LLM_FREE] = {[LLM_NOT_FOUND] = "no sequence has this id. Handout: \"Return -1 if not found.\""},
    [LLM_BATCH] = {[LLM_CAPACITY] = APPEND_FULL, [LLM_NO_BLOCKS] = APPEND_PROBES, [LLM_ARGUMENT] = ARGUMENT},
    [LLM_RUN] = {[LLM_CAPACITY] = APPEND_FULL, [LLM_NO_BLOCKS] = APPEND_PROBES, [LLM_ARGUMENT] = ARGUMENT},
};

static const char *sentence(enum llm_function function, enum llm_reason reason) {
    switch (reason) {
    case LLM_NULL_ENGINE:
        return NULL_ENGINE;
    case LLM_NO_MEMORY:
        return NO_MEMORY;
    case LLM_CORRUPT:
        return CORRUPT;
    default:
        return sentences[function][reason];
    }
}

static int debug;

void llm_refusals_start(void) {
    const char *value = getenv("LLM_MEMORY_DEBUG");
    debug = value != NULL && strcmp(value, "1") == 0;
}

/* Writes the line with one system call, so that lines of several threads do not mix. */
static void write_line(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0) {
        return; /* stderr is closed, but llm_last_error has the reason */
    }
}

void llm_refused(int function, int reason, const void *first, const void *second, long a, long b) {
    const char *why = sentence(function, reason);
    llm_calls_set_error(why);
    if (!debug) {
        return;
    }
    switch ((enum llm_function)function) {
    case LLM_INIT:
        write_line("llm_memory: llm_init(%p, %lu) returned NULL: %s\n", first, (unsigned long)a, why);
        break;
    case LLM_CREATE:
        write_line("llm_memory: create_sequence(%p, %ld, %ld) returned NULL: %s\n", first, a, b, why);
        break;
    case LLM_FORK:
        write_line("llm_memory: fork_sequence(%p, %ld, %ld) returned NULL: %s\n", first, a, b, why);
        break;
    case LLM_APPEND:
        write_line("llm_memory: append_kv(%p, %ld, %ld) returned -1: %s\n", first, a, b, why);
        break;
    case LLM_FREE:
        write_line("llm_memory: free_sequence(%p, %ld) returned -1: %s\n", first, a, why);
        break;
    case LLM_DESTROY:
        write_line("llm_memory: llm_destroy(%p) returned -1: %s\n", first, why);
        break;
    case LLM_BATCH:
    case LLM_RUN:
        write_line("llm_memory: %s(%p, %p, kv_data, %ld) returned -1: %s\n",
                   function == LLM_BATCH ? "append_kv_batch" : "append_kv_run", first, second, a, why);
        break;
    case LLM_FUNCTIONS:
        break;
    }
}

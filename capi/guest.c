/*
 * What it takes to be a good guest in a C process (design, decision 3).
 *
 * The runtime starts its threads while the program's main already runs, and a
 * child forked in that moment would inherit locks that nobody opens again. So
 * the constructor returns only when the runtime has come to rest, and a fork
 * waits for the same.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "guest.h"

enum { START_MS = 500, FORK_MS = 50 };

static void before_fork(void) { llm_threads_settle(FORK_MS); }

/*
 * Runs after the constructor of the Go runtime, which the linker put first, and
 * before the program's main or the return of dlopen.
 */
__attribute__((constructor)) static void enter(void) {
    const char *strict = getenv("LLM_MEMORY_STRICT");
    llm_start(strict != NULL && strcmp(strict, "1") == 0);
    llm_threads_settle(START_MS);
    pthread_atfork(before_fork, NULL, llm_threads_forget);
}

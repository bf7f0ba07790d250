/*
 * What it takes to be a good guest in a C process (design, decision 3).
 *
 * The runtime starts its threads while the program's main already runs, and a
 * child forked in that moment would inherit locks that nobody opens again. So
 * the constructor returns only when the runtime has come to rest, and a fork
 * brings it to rest again.
 */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "guest.h"

enum { START_MS = 500, FORK_MS = 200 };

/*
 * The monitor may just be asking this thread to make way for others, which a
 * child cannot: it has no others. So first the monitor is stopped, then a call
 * into Go honours what it asked for, then whoever that woke goes back to sleep.
 */
static void before_fork(void) {
    llm_monitor_freeze(FORK_MS);
    llm_rest();
    llm_threads_settle(FORK_MS);
}

static void in_child(void) {
    llm_monitor_release();
    llm_threads_forget();
}

/* Memcheck preloads a library of its own; it is looked for by name. */
static int is_valgrind(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "/vgpreload_") != NULL;
}

/*
 * Runs after the constructor of the Go runtime, which the linker put first, and
 * before the program's main or the return of dlopen.
 */
__attribute__((constructor)) static void enter(void) {
    const char *strict = getenv("LLM_MEMORY_STRICT");
    int watched = dl_iterate_phdr(is_valgrind, NULL);
    llm_start(strict != NULL && strcmp(strict, "1") == 0, watched);
    if (!watched) { /* Memcheck reports the copying of stacks */
        llm_stacks_deepen();
    }
    llm_rest();
    llm_threads_settle(START_MS);
    llm_threads_block_signals();
    pthread_atfork(before_fork, llm_monitor_release, in_child);
}

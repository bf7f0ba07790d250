/*
 * A thread's calls run on a goroutine stack of their own, which must be deep
 * enough for the host's signal handlers (course.Deepen) from the first call on.
 * The one place before that is where every exported function asks whether the
 * runtime has started; the linker's --wrap puts this file there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "_cgo_export.h"
#include "guest.h"

typedef uintptr_t wait_fn(void);

/* Weak, because cgo also links this file without --wrap, to look at its symbols. */
wait_fn __real__cgo_wait_runtime_init_done __attribute__((weak));
wait_fn __wrap__cgo_wait_runtime_init_done;

static int wanted; /* not before the runtime has started, nor under Valgrind */
static __thread char deep __attribute__((tls_model("initial-exec")));

/* With signals blocked: the stack is still shallow. */
static void deepen(void) {
    sigset_t all, before;
    deep = 1; /* first, because llm_deepen comes through here again */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    llm_deepen();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void llm_stacks_deepen(void) { wanted = 1; }

uintptr_t __wrap__cgo_wait_runtime_init_done(void) {
    if (!deep && wanted) {
        deepen();
    }
    return __real__cgo_wait_runtime_init_done();
}

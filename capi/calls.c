/*
 * Every call passes here on its way in and out: at the two places where each
 * exported function asks the runtime whether it has started and releases a
 * context that nobody set. The linker's --wrap puts this file there.
 *
 * On the way in, a thread's first call gets it a deep stack (course.Deepen), for
 * the host's signal handlers. And a thread says that it is inside, so that a
 * fork can wait until none is: a child that is forked while another thread runs
 * Go code inherits locks that nobody opens again.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "guest.h"

/* A thread that has called, in a ring of all those that live. */
struct caller {
    struct caller *prev, *next;
    _Atomic int inside; /* calls that it is in; more than one in a signal handler */
    int pausing;        /* it is the one that paused the others */
};

static __thread struct caller me __attribute__((tls_model("initial-exec")));

static struct caller all = {.prev = &all, .next = &all};
static pthread_mutex_t ring = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* and held from pause to resume */
static pthread_key_t leaving;
static enum { NO_KEY, KEY, NO_KEYS_LEFT } key;
static _Atomic int paused;
static int deep_stacks; /* not before the runtime has started, nor under Valgrind */

static void leave(void *unused) {
    (void)unused;
    pthread_mutex_lock(&ring);
    me.prev->next = me.next;
    me.next->prev = me.prev;
    me.next = NULL;
    pthread_mutex_unlock(&ring);
}

/* With signals blocked: a handler might call, too. */
static void join(void) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pthread_mutex_lock(&ring);
    if (key == NO_KEY) {
        key = pthread_key_create(&leaving, leave) == 0 ? KEY : NO_KEYS_LEFT;
    }
    if (key == KEY && pthread_setspecific(leaving, &me) == 0) {
        me.prev = &all;
        me.next = all.next;
        me.next->prev = all.next = &me;
    } else { /* nobody would take it out of the ring: it stays outside */
        me.prev = me.next = &me;
    }
    pthread_mutex_unlock(&ring);
    if (deep_stacks) {
        llm_deepen(); /* comes through here again, as one that has joined */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void step(int by) {
    atomic_store_explicit(&me.inside, atomic_load_explicit(&me.inside, memory_order_relaxed) + by,
                          memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

typedef uintptr_t in_fn(void);
typedef void out_fn(uintptr_t);
in_fn __wrap__cgo_wait_runtime_init_done;
out_fn __wrap__cgo_release_context;

/* Weak, because cgo also links this file without --wrap, to look at its symbols. */
in_fn __real__cgo_wait_runtime_init_done __attribute__((weak));

/*
 * First the thread says that it is inside, then it looks whether it may be. The
 * processor may do the second before the others see the first; it is for the
 * one who pauses them to put a barrier in between.
 */
uintptr_t __wrap__cgo_wait_runtime_init_done(void) {
    if (__builtin_expect(me.next == NULL, 0)) {
        join();
    }
    step(1);
    while (__builtin_expect(atomic_load_explicit(&paused, memory_order_acquire), 0) && !me.pausing &&
           atomic_load_explicit(&me.inside, memory_order_relaxed) == 1) {
        step(-1);
        pthread_mutex_lock(&ring);
        pthread_mutex_unlock(&ring);
        step(1);
    }
    return __real__cgo_wait_runtime_init_done();
}

void __wrap__cgo_release_context(uintptr_t context) {
    (void)context;
    step(-1);
}

static int membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

/* Where a sandbox forbids the call, waiting does it: stores leave a processor in nanoseconds. */
static void barrier(void) {
    const struct timespec ample = {.tv_nsec = 1000000};
    if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
        !(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))) {
        nanosleep(&ample, NULL);
    }
}

int llm_calls_pause(int most_ms) {
    const struct timespec a_little = {.tv_nsec = 20000};
    pthread_mutex_lock(&ring);
    if (me.pausing++ > 0 || atomic_load(&me.inside) > 0) {
        return 0;
    }
    atomic_store(&paused, 1);
    if (all.next != &me || all.prev != &me) {
        barrier();
    }
    int left = 50 * most_ms;
    for (struct caller *other = all.next; other != &all; other = other->next) {
        while (other != &me && atomic_load_explicit(&other->inside, memory_order_acquire) > 0) {
            if (left-- == 0) {
                return 0;
            }
            nanosleep(&a_little, NULL);
        }
    }
    return 1;
}

void llm_calls_resume(void) {
    if (--me.pausing == 0) {
        atomic_store(&paused, 0);
    }
    pthread_mutex_unlock(&ring);
}

void llm_calls_forget(void) {
    static const pthread_mutex_t open = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    ring = open;
    all.prev = all.next = &all;
    if (me.next != NULL) {
        all.prev = all.next = &me;
        me.prev = me.next = &all;
    }
    me.pausing = 0;
    atomic_store(&paused, 0);
}

void llm_calls_deepen(void) { deep_stacks = 1; }

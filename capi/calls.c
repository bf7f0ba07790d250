/*
 * Runs at the beginning and at the end of every call. Each exported function calls
 * _cgo_wait_runtime_init_done and _cgo_release_context; the linker's --wrap replaces
 * both with the functions of this file.
 *
 * At its beginning, the first call of a thread grows the thread's Go stack
 * (course.Deepen), for the host's signal handlers. Each call marks its thread as
 * inside, so that a fork can wait until no thread is: a child that is forked while
 * another thread runs Go code inherits locks that nobody releases.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "guest.h"

/*
 * A thread that has called. The record is not in thread-local storage: if a thread
 * calls in the last round of its destructors, no destructor runs after the call. The
 * record of such a thread stays taken, with inside 0.
 */
struct caller {
    struct caller *next;
    _Atomic int inside; /* number of calls that the thread is in; above 1 if a signal handler calls */
    int taken;
    int pausing;        /* this thread paused the others */
    long tid;           /* the kernel's id of the thread */
    const char *error;  /* why its last refused call was refused */
};

static __thread struct caller *me __attribute__((tls_model("initial-exec")));

/*
 * Held while records are taken or released, and from pause to resume. Signals are
 * blocked meanwhile, because a handler that forks would wait for its own thread.
 */
static pthread_mutex_t callers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct caller *all; /* records are never unmapped */
static struct caller no_record; /* for threads without a record, for want of memory; a fork ignores them */
static pthread_key_t thread_exit;
static enum { NO_KEY, KEY, NO_KEYS_LEFT } key;
static _Atomic int paused;
static int deep_stacks; /* 0 until the runtime has started, and under Valgrind */

static void lock(sigset_t *before) {
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, before);
    pthread_mutex_lock(&callers_lock);
}

static void unlock(const sigset_t *before) {
    pthread_mutex_unlock(&callers_lock);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static struct caller *record(void) {
    enum { PAGE = 4096, MANY = PAGE / sizeof(struct caller) };
    for (struct caller *c = all; c != NULL; c = c->next) {
        if (!c->taken) {
            return c;
        }
    }
    struct caller *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    for (size_t i = 0; i < MANY; i++) {
        page[i].next = all;
        all = &page[i];
    }
    return all;
}

static void remove_caller(void *record) {
    sigset_t before;
    lock(&before);
    ((struct caller *)record)->taken = 0;
    me = NULL;
    unlock(&before);
}

/* The first call of a thread. */
static void add_caller(void) {
    sigset_t before;
    lock(&before);
    struct caller *mine = record();
    if (key == NO_KEY) {
        key = pthread_key_create(&thread_exit, remove_caller) == 0 ? KEY : NO_KEYS_LEFT;
    }
    if (mine == NULL) {
        me = &no_record;
    } else {
        me = mine;
        me->taken = 1;
        me->error = NULL;
        me->tid = syscall(SYS_gettid);
        if (key == KEY) {
            pthread_setspecific(thread_exit, me); /* if there is no key, the record stays taken */
        }
    }
    pthread_mutex_unlock(&callers_lock);
    if (deep_stacks) {
        llm_deepen(); /* this is a call too, but the thread has a record now */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void step(int by) {
    atomic_store_explicit(&me->inside, atomic_load_explicit(&me->inside, memory_order_relaxed) + by,
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
 * The thread first marks itself as inside and then checks whether calls are paused.
 * The check may happen before other threads see the mark, so the thread that pauses
 * them executes a memory barrier on all threads.
 */
uintptr_t __wrap__cgo_wait_runtime_init_done(void) {
    if (__builtin_expect(me == NULL, 0)) {
        add_caller();
    }
    step(1);
    while (__builtin_expect(atomic_load_explicit(&paused, memory_order_acquire), 0) && !me->pausing &&
           atomic_load_explicit(&me->inside, memory_order_relaxed) == 1) {
        sigset_t before;
        step(-1);
        lock(&before); /* until the fork is over */
        unlock(&before);
        step(1);
    }
    return __real__cgo_wait_runtime_init_done();
}

void __wrap__cgo_release_context(uintptr_t context) {
    (void)context;
    step(-1);
}

void llm_calls_set_error(const char *error) {
    if (me != &no_record) {
        me->error = error;
    }
}

const char *llm_last_error(void) { return me != NULL ? me->error : NULL; }

static int membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

/* If a sandbox forbids the system call, waiting suffices: a store becomes visible within nanoseconds. */
static void barrier(void) {
    const struct timespec ample = {.tv_nsec = 1000000};
    if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
        !(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))) {
        nanosleep(&ample, NULL);
    }
}

static int others(void) {
    const struct caller *c = all;
    while (c != NULL && (c == me || !c->taken)) {
        c = c->next;
    }
    return c != NULL;
}

int llm_calls_alone(void) {
    sigset_t before;
    lock(&before);
    int alone = !others();
    unlock(&before);
    return alone;
}

/*
 * Waits until the other thread is not inside, and returns 1. Returns 0 if the other has
 * slept for stuck_ms, because it may be waiting for this thread, or after most_ms.
 */
static int wait_outside(struct caller *other, int stuck_ms, int most_ms) {
    const struct timespec a_little = {.tv_nsec = 20000};
    const int polls_a_ms = 20;
    unsigned long runs = 0;
    for (int polls = 0; atomic_load_explicit(&other->inside, memory_order_acquire) > 0; polls++) {
        if (polls % (polls_a_ms * stuck_ms) == 0 && llm_thread_is_stuck(other->tid, &runs) && polls > 0) {
            return 0;
        }
        if (polls == polls_a_ms * most_ms) {
            return 0;
        }
        nanosleep(&a_little, NULL);
    }
    return 1;
}

int llm_calls_pause(int stuck_ms, int most_ms, sigset_t *before) {
    if (me == NULL) {
        add_caller();
    }
    lock(before);
    if (atomic_load(&me->inside) > 0) {
        return 0;
    }
    me->pausing = 1;
    atomic_store(&paused, 1);
    if (others()) {
        barrier();
    }
    for (struct caller *other = all; other != NULL; other = other->next) {
        if (!wait_outside(other, stuck_ms, most_ms)) {
            return 0;
        }
    }
    return 1;
}

void llm_calls_resume(const sigset_t *before) {
    me->pausing = 0;
    atomic_store(&paused, 0);
    unlock(before);
}

void llm_calls_stay_paused(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

/* The records of the parent's other threads are free again. */
void llm_calls_forget(void) {
    for (struct caller *c = all; c != NULL; c = c->next) {
        if (c != me) {
            c->taken = 0;
            atomic_store(&c->inside, 0);
        }
    }
    if (me != NULL) {
        me->tid = syscall(SYS_gettid);
    }
}

void llm_calls_deepen(void) { deep_stacks = 1; }

/*
 * Every thread of the Go runtime is created through __wrap_pthread_create (the
 * linker's --wrap), which records two things.
 *
 * The kernel's id of the thread is needed to check whether the thread sleeps, and to
 * send it a signal (visit.c).
 *
 * The address of its dynamic thread vector keeps Memcheck from reporting the vector:
 * glibc callocs it and keeps only a pointer to its second entry, so that Memcheck
 * would call the block possibly lost although the thread lives.
 *
 * __wrap_pthread_key_create records the keys of the library and of the runtime.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"
#include "threads.h"

/* More than the threads of the runtime (at most 5 were observed). Further ones are not recorded. */
enum { MOST_THREADS = 64 };

static struct runtime_thread {
    void *(*start)(void *);
    void *arg;
    void *vector;     /* begin of its dynamic thread vector */
    _Atomic long tid; /* 0 until it runs */
    sigjmp_buf way_out; /* jumps to the end of begin */
} threads[MOST_THREADS];

static _Atomic int used;

static void *vector_begin(void) {
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
    /* The thread's pointer to the vector points at entry 1, an entry is 16 bytes. */
#if defined(__x86_64__)
    struct head { /* tcbhead_t */
        void *tcb;
        char *dtv;
    } *head = (struct head *)pthread_self();
#else
    struct head {
        char *dtv;
    } *head = __builtin_thread_pointer();
#endif
    return head->dtv - 16;
#else
    return NULL;
#endif
}

/*
 * Tells Valgrind to stop or to resume reporting errors of this thread (VALGRIND_DISABLE_ERROR_REPORTING and
 * VALGRIND_ENABLE_ERROR_REPORTING). The runtime's own threads execute nothing of the host. On arm64 the
 * stack of the main goroutine grows, and the runtime then reads words that were not written. Without
 * Valgrind these instructions have no effect.
 */
enum { STOP = 1, RESUME = -1 };

static void report_errors(intptr_t change) {
    volatile intptr_t request[6] = {0x1801, change}; /* VG_USERREQ__CHANGE_ERR_DISABLEMENT */
    intptr_t result = 0;
#if defined(__x86_64__)
    __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
                     : "+d"(result)
                     : "a"(request)
                     : "cc", "memory");
#elif defined(__aarch64__)
    register volatile intptr_t *x4 __asm__("x4") = request;
    register intptr_t x3 __asm__("x3") = result;
    __asm__ volatile("ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\t"
                     "orr x10, x10, x10"
                     : "+r"(x3)
                     : "r"(x4)
                     : "cc", "memory");
#endif
    (void)request, (void)result;
}

static void *begin(void *arg) {
    struct runtime_thread *self = arg;
    report_errors(STOP);
    sigset_t all;
    sigfillset(&all); /* the runtime unblocks the signals that it needs */
    sigdelset(&all, LLM_VISIT);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    self->vector = vector_begin();
    atomic_store(&self->tid, syscall(SYS_gettid));
    if (sigsetjmp(self->way_out, 0) == 0) {
        self->start(self->arg);
    }
    report_errors(RESUME);
    return NULL;
}

void llm_thread_leave(long tid) {
    for (int i = 0; i < MOST_THREADS; i++) {
        if (atomic_load(&threads[i].tid) == tid) {
            siglongjmp(threads[i].way_out, 1);
        }
    }
}

/*
 * glibc gives every thread that calls free an arena of 64 MB of address space, and 128 MB while it
 * is created. Under a limit (ulimit -v) of 1 GiB, too little was sometimes left for the Go heap, and
 * the program ended. So under a limit below 4 GiB there is only one arena.
 */
static void spare_address_space(void) {
#ifdef M_ARENA_MAX
    const rlim_t plenty = (rlim_t)4 << 30;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < plenty) {
        mallopt(M_ARENA_MAX, 1);
    }
#endif
}

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Weak, because cgo also links this file without --wrap, to look at its symbols. */
create_fn __real_pthread_create __attribute__((weak));
create_fn __wrap_pthread_create;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    create_fn *create = __real_pthread_create;
    int slot = atomic_fetch_add(&used, 1);
    if (slot == 0) {
        spare_address_space();
    }
    if (slot >= MOST_THREADS) {
        atomic_store(&used, MOST_THREADS);
        return create(thread, attr, start, arg);
    }
    threads[slot].start = start;
    threads[slot].arg = arg;
    atomic_store(&threads[slot].tid, 0);
    int failed = create(thread, attr, begin, &threads[slot]);
    if (failed) { /* the runtime tries again and uses the same slot */
        int next = slot + 1;
        atomic_compare_exchange_strong(&used, &next, slot);
    }
    return failed;
}

typedef int key_fn(pthread_key_t *, void (*)(void *));

key_fn __real_pthread_key_create __attribute__((weak));
key_fn __wrap_pthread_key_create;

static pthread_key_t keys[4]; /* the runtime, calls.c and guest.c have 3 */
static _Atomic int keys_used;

int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    int failed = __real_pthread_key_create(key, destructor);
    int slot = failed ? MOST_THREADS : atomic_fetch_add(&keys_used, 1);
    if (slot < (int)(sizeof keys / sizeof *keys)) {
        keys[slot] = *key;
    }
    return failed;
}

void llm_keys_delete(void) {
    for (int i = 0; i < atomic_load(&keys_used) && i < (int)(sizeof keys / sizeof *keys); i++) {
        pthread_key_delete(keys[i]);
    }
}

long llm_thread_id(int i) {
    int n = atomic_load(&used);
    return i < n && i < MOST_THREADS ? atomic_load(&threads[i].tid) : -1;
}

/* Reads /proc/self/task/TID/NAME; 0 when it is not there. */
static int read_task(long tid, const char *name, char *to, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/%s", tid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t n = read(fd, to, size - 1);
    close(fd);
    to[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* 1 if the thread sleeps. Then it adds the number of times that the thread has run to *runs. */
static int asleep(long tid, unsigned long *runs) {
    char text[512];
    if (tid == 0) {
        return 0;
    }
    if (!read_task(tid, "stat", text, sizeof text)) {
        return 1; /* the thread has ended, or there is no /proc */
    }
    const char *state = strrchr(text, ')');
    if (state == NULL || strncmp(state, ") S", 3) != 0) {
        return 0;
    }
    unsigned long slices = 0;
    if (read_task(tid, "schedstat", text, sizeof text) && sscanf(text, "%*u %*u %lu", &slices) == 1) {
        *runs += slices;
    }
    return 1;
}

int llm_thread_is_stuck(long tid, unsigned long *runs) {
    unsigned long before = *runs;
    *runs = 0;
    return asleep(tid, runs) && *runs == before;
}

static int all_asleep(unsigned long *runs) {
    long tid;
    *runs = 0;
    for (int i = 0; (tid = llm_thread_id(i)) >= 0; i++) {
        if (!asleep(tid, runs)) {
            return 0;
        }
    }
    return 1;
}

/*
 * Returns when two checks in a row find all threads asleep and none has run in
 * between. So none was awake while another was checked.
 */
void llm_threads_settle(int most_ms) {
    const struct timespec pause = {.tv_nsec = 100000};
    unsigned long before, after;
    for (int tenths = 0; tenths < 10 * most_ms; tenths++) {
        if (all_asleep(&before) && all_asleep(&after) && before == after) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

int llm_threads_of_host(void) {
    struct stat task;
    if (stat("/proc/self/task", &task) != 0) {
        return -1;
    }
    int n = atomic_load(&used);
    return (int)task.st_nlink - 2 - (n < MOST_THREADS ? n : MOST_THREADS); /* a folder has two links more than it has folders */
}

void llm_threads_forget(void) { atomic_store(&used, 0); }

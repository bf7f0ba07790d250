/*
 * What it takes to be a good guest in a C process (internal/README.md, decision 3).
 *
 * The runtime still starts threads after its constructor has returned, and a child
 * forked in that moment would inherit locks that are never released. So the
 * constructor here returns only when all threads of the runtime sleep, and a fork
 * waits until they sleep again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "guest.h"

/*
 * Limits of waiting for threads that never answer. They are long enough for a busy
 * machine. STUCK_MS applies to a thread that sleeps inside a call.
 */
enum { STUCK_MS = 200, REST_MS = 5000, MOST_MS = 30000 };

static int watched; /* the program runs under Memcheck */
static int left;    /* the program exits, and the runtime's threads have ended */

/* What is restored after a fork. Written by the thread that forks, after it has paused the others. */
static struct {
    int cancel;
    sigset_t mask;
} forker;

/*
 * The child has only this thread. So no other thread may be inside a call, and this
 * thread must own a processor (P) of the runtime and must not have been asked to
 * yield it. The runtime's monitor asks for that, and moves processors between
 * threads. Therefore the other callers are paused; a first call gets a processor; the
 * monitor is stopped; a second call handles a pending request to yield; and the
 * threads that this has woken go back to sleep.
 *
 * If the others cannot be paused in time, the fork goes on: the parent must not hang.
 */
static void before_fork(void) {
    int cancel;
    sigset_t mask;
    if (left) {
        return;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int all_paused = llm_calls_pause(STUCK_MS, MOST_MS, &mask);
    forker.cancel = cancel;
    forker.mask = mask;
    if (all_paused) {
        llm_rest();
        llm_monitor_stop(REST_MS);
        llm_rest();
        llm_threads_settle(REST_MS);
    }
}

static void after_fork(void) {
    int cancel = forker.cancel;
    sigset_t mask = forker.mask;
    if (left) {
        return;
    }
    llm_monitor_release();
    llm_calls_resume(&mask);
    pthread_setcancelstate(cancel, NULL);
}

static void in_child(void) {
    llm_threads_forget();
    llm_calls_forget();
    after_fork();
}

/* Defined if the program contains LeakSanitizer. */
extern void __lsan_enable(void) __attribute__((weak));

/* Recognises the library that Valgrind preloads by its name. */
static int is_valgrind(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "/vgpreload_") != NULL;
}

/*
 * Keeps the library in memory after dlclose, because the runtime's threads continue to
 * run. It is not called under Memcheck, where they end, and where unloading the
 * library frees what the dynamic loader has allocated for it.
 */
static void stay_loaded(void) {
    Dl_info info;
    struct link_map *map;
    if (dladdr1(&watched, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map->l_name[0] != '\0') { /* not in an archive */
        dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

/*
 * A process ends with its last thread, but the runtime's threads do not end. So when
 * the main thread ends by pthread_exit, its last destructor starts a thread that waits
 * until the program has no other thread, and then exits as glibc would. (The kernel
 * still counts a main thread that has ended.) Under Memcheck the main thread itself
 * waits, because the exit ends all threads of the runtime, and a started thread would
 * count as one of them.
 */
static pthread_key_t main_thread;
static sigset_t mask_of_main;

static void *await_others(void *unused) {
    const struct timespec pause = {.tv_nsec = 10000000};
    int others;
    while ((others = llm_threads_of_host()) > 1) {
        nanosleep(&pause, NULL);
    }
    if (others == 1 && !left) {
        pthread_sigmask(SIG_SETMASK, &mask_of_main, NULL);
        exit(0);
    }
    return unused;
}

static void main_leaves(void *round) {
    pthread_t waits;
    if ((intptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS) { /* the program's destructors run first */
        pthread_setspecific(main_thread, (char *)round + 1);
        return;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask_of_main);
    if (watched || pthread_create(&waits, NULL, await_others, NULL) != 0) {
        await_others(NULL);
        return;
    }
    pthread_detach(waits);
}

static void watch_main(void) {
    if (syscall(SYS_gettid) == getpid() && pthread_key_create(&main_thread, main_leaves) == 0) {
        pthread_setspecific(main_thread, (void *)1);
    }
}

/*
 * Runs after the constructor of the Go runtime, which the linker put first, and
 * before the program's main or the return of dlopen.
 */
static void at_exit(void);

__attribute__((constructor)) static void enter(void) {
    const char *strict = getenv("LLM_MEMORY_STRICT");
    watched = dl_iterate_phdr(is_valgrind, NULL);
    if (!watched) { /* Memcheck reports the copying of stacks */
        stay_loaded();
        llm_calls_deepen(); /* before this thread's first call, llm_start */
    }
    llm_refusals_start();
    llm_start(strict != NULL && strcmp(strict, "1") == 0, watched, watched || __lsan_enable != NULL);
    llm_rest();
    llm_threads_settle(REST_MS);
    llm_threads_block_signals(watched);
    pthread_atfork(before_fork, after_fork, in_child);
    watch_main();
    if (watched) {
        atexit(at_exit);
    }
}

/*
 * Memcheck checks the heap when the program has exited, and would report what glibc has
 * allocated for threads that still run. So under Memcheck the runtime's threads end
 * first. Afterwards only this thread may call; other threads that call wait for ever,
 * in the loop where they wait for a fork.
 */
static void end_threads(void) {
    sigset_t mask;
    if (!watched || left) {
        return;
    }
    if (!llm_calls_pause(MOST_MS, MOST_MS, &mask)) { /* this thread is in a call itself, or another never comes out */
        llm_calls_resume(&mask);
        return;
    }
    llm_rest();
    llm_threads_settle(MOST_MS);
    llm_threads_end(MOST_MS);
    left = 1;
    llm_calls_stay_paused(&mask);
}

/* Runs before the destructors, because the drop-in cannot unload the library in a destructor. */
static void at_exit(void) {
    if (llm_calls_alone()) {
        end_threads();
    }
}

/* The last destructor, because those of the program may call. */
__attribute__((destructor(101))) static void leave(void) {
    end_threads();
    if (watched) {
        llm_keys_delete();
    }
}

/*
 * What it takes to be a good guest in a C process (internal/README.md, decision 3).
 *
 * The runtime starts its threads while the program's main already runs, and a
 * child forked in that moment would inherit locks that are never released. So
 * the constructor returns only when the runtime has come to rest, and a fork
 * brings it to rest again.
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
 * Limits of waiting, for what never comes: what does come is waited for on a busy
 * machine, too. STUCK_MS is for a thread in a call that sleeps.
 */
enum { STUCK_MS = 200, REST_MS = 5000, MOST_MS = 30000 };

static int watched; /* by Memcheck */
static int left;    /* the program exits, and the runtime's threads have ended */

/* What a fork restores, written by the one that has paused the others. */
static struct {
    int cancel;
    sigset_t mask;
} forker;

/*
 * The child has no threads but this one. So no other may be inside a call; this
 * one must own a processor of the runtime, and nobody may have asked it to make
 * way for others. It is the monitor that asks, and that takes processors from
 * one thread for another. So, with the others paused, a first call gets a
 * processor, the monitor is stopped, a second call honours what it has asked
 * for, and whoever that woke goes back to sleep.
 *
 * What cannot be paused in time is left as it is: the parent must not hang.
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

/* There when the program has LeakSanitizer in it. */
extern void __lsan_enable(void) __attribute__((weak));

/* Memcheck preloads a library of its own; it is looked for by name. */
static int is_valgrind(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "/vgpreload_") != NULL;
}

/*
 * Keeps the library in memory when the program closes it: the runtime's threads
 * go on running. Under Memcheck they end, and to unload the library is the way
 * to free what the dynamic loader allocated for it.
 */
static void stay_loaded(void) {
    Dl_info info;
    struct link_map *map;
    if (dladdr1(&watched, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map->l_name[0] != '\0') { /* not in an archive */
        dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

/*
 * A process ends with its last thread, and the runtime's threads do not end. So when
 * main leaves by pthread_exit, its last destructor starts a thread that waits until no
 * other thread of the program is left, and exits then as glibc would. The kernel goes on
 * counting a main thread that has left. Under Memcheck the main thread waits itself,
 * since the exit ends the runtime's threads and that one would be among them.
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
    if ((intptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS) { /* the program's own come first */
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
        llm_calls_deepen(); /* before this thread's first call, which is the next line */
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
 * Memcheck looks at the heap when the program has exited, and what glibc allocated
 * for threads that still run is there then. So under Memcheck the runtime's threads
 * end first. This thread may call afterwards; others that call are held where they
 * wait for a fork, too.
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

/* Before the destructors, so that the drop-in can unload the library, which it cannot in a destructor. */
static void at_exit(void) {
    if (llm_calls_alone()) {
        end_threads();
    }
}

/* The last destructor: those of the program may call. */
__attribute__((destructor(101))) static void leave(void) {
    end_threads();
    if (watched) {
        llm_keys_delete();
    }
}

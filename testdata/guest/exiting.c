/*
 * exiting MODE - a program that ends in one of the ways a program can end. What
 * Memcheck then says of the heap is what it says of the same program with a
 * llm_memory.c in plain C.
 *
 *   end         returns from main
 *   fork        returns from main, and so has a child
 *   child       has a child that calls and exits, and a child of that one
 *   threads     exits while other threads call
 *   joined      exits when the threads that called have ended
 *   thread      exits from another thread than main's
 *   atexit      calls once more from an exit handler, and forks there
 *   destructor  calls once more from a destructor
 *   lost        never destroys its engine
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BLOCKS = 64, THREADS = 3 };

static int pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *last; /* for the exit handler and the destructor */
static _Atomic int ready; /* threads whose pool is full */
static _Atomic int calls;

static LLMEngine *use(int sequences) {
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 0, 20) != NULL);
    for (int i = 1; i < sequences; i++) {
        CHECK(fork_sequence(engine, 0, i) != NULL && append_kv(engine, i, i) == 0);
    }
    CHECK(free_sequence(engine, 0) == 0);
    return engine;
}

static void wait_for(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void have_children(int generations) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(llm_destroy(use(4)) == 0);
        if (generations > 1) {
            have_children(generations - 1);
        }
        exit(0);
    }
    wait_for(child);
}

/* Its pool is full when it is ready. The calls after that change no allocation, so what
 * the program leaves does not depend on where its exit meets them. */
static void *keep_calling(void *own_pool) {
    LLMEngine *engine = llm_init(own_pool, sizeof pool);
    CHECK(create_sequence(engine, 1, 20) != NULL);
    while (append_kv(engine, 1, 2) == 0) {
    }
    atomic_fetch_add(&ready, 1);
    for (;;) {
        if (append_kv(engine, 1, 2) != -1 || fork_sequence(engine, 2, 3) != NULL) {
            abort();
        }
        atomic_fetch_add(&calls, 1);
        sched_yield();
    }
    return NULL;
}

static void *call_and_end(void *unused) {
    (void)unused;
    CHECK(llm_destroy(use(3)) == 0);
    return NULL;
}

static void *call_and_exit(void *unused) {
    (void)unused;
    CHECK(llm_destroy(use(3)) == 0);
    exit(0);
}

static void start(pthread_t *thread, void *(*run)(void *), void *arg) {
    CHECK(pthread_create(thread, NULL, run, arg) == 0);
}

static void use_last(void) {
    CHECK(create_sequence(last, 100, 16) != NULL && free_sequence(last, 100) == 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(create_sequence(last, 100, 16) == NULL || llm_destroy(last) != 0);
    }
    wait_for(child);
    CHECK(llm_destroy(last) == 0);
    last = NULL;
}

static int in_destructor;

__attribute__((destructor)) static void end(void) {
    if (in_destructor) {
        use_last();
    }
}

static void run_threads(void) {
    static int pools[THREADS][BLOCKS * KV_PER_BLOCK];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        start(&thread[i], keep_calling, pools[i]);
    }
    while (atomic_load(&ready) < THREADS || atomic_load(&calls) < 50) {
        sched_yield();
    }
    exit(0);
}

static void run_joined(void) {
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        start(&thread, call_and_end, NULL);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* Not inlined, and its stack overwritten, so that main keeps no pointer. */
__attribute__((noinline)) static void lose(void) { use(5); }

__attribute__((noinline)) static void overwrite(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; i++) {
        stack[i] = 0;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *mode = argv[1];
    if (strcmp(mode, "lost") == 0) {
        lose();
        overwrite();
        return 0;
    }
    CHECK(llm_destroy(use(30)) == 0);
    if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        if (child != 0) {
            wait_for(child);
        }
    } else if (strcmp(mode, "child") == 0) {
        have_children(2);
    } else if (strcmp(mode, "threads") == 0) {
        run_threads();
    } else if (strcmp(mode, "joined") == 0) {
        run_joined();
    } else if (strcmp(mode, "thread") == 0) {
        pthread_t thread;
        start(&thread, call_and_exit, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(mode, "atexit") == 0) {
        last = use(5);
        atexit(use_last);
    } else if (strcmp(mode, "destructor") == 0) {
        last = use(5);
        in_destructor = 1;
    } else {
        CHECK(strcmp(mode, "end") == 0);
    }
    return 0;
}

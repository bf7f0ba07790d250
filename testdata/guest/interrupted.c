/*
 * interrupted plain|onstack THREADS - a signal comes every 100 microseconds
 * while each thread makes 200,000 calls, and its handler does what handlers do:
 * it formats a line, and uses stack for that: a few KB of the runtime's signal
 * stack, or 40 KB of the call's own. The main thread calls alone at first, so what
 * a frame that does not fit has overwritten is what the others begin with.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "check.h"

enum { CALLS = 200000, MOST = 8, BLOCKS = 256 };

static volatile sig_atomic_t signals;

static void format(char *line, size_t size, int sig) {
    memset(line, 0x5a, size);
    signals = signals + (snprintf(line, size, "signal %d in %s", sig, __func__) > 0);
}

static void small(int sig) {
    char line[4096];
    format(line, sizeof line, sig);
}

static void large(int sig) {
    char line[40960];
    format(line, sizeof line, sig);
}

static void *call(void *unused) {
    int *pool = malloc(BLOCKS * BLOCK_SIZE);
    CHECK(pool != NULL);
    LLMEngine *engine = llm_init(pool, BLOCKS * BLOCK_SIZE);
    CHECK(engine != NULL);
    for (int done = 0; done < CALLS;) {
        Sequence *seq = create_sequence(engine, 1, 1);
        CHECK(seq != NULL);
        for (int i = 1; i < 1000; i++, done++) {
            CHECK(append_kv(engine, 1, i) == 0 && record_at(engine, seq, i) == i);
        }
        CHECK(fork_sequence(engine, 1, 2) != NULL && append_kv(engine, 2, 1) == 0);
        CHECK(free_sequence(engine, 1) == 0 && free_sequence(engine, 2) == 0);
        check_conserved(engine);
    }
    CHECK(llm_destroy(engine) == 0);
    free(pool);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int threads = atoi(argv[2]);
    CHECK(threads >= 1 && threads <= MOST);
    int block[BLOCK_SIZE / sizeof(int)];
    CHECK(llm_destroy(llm_init(block, sizeof block)) == 0); /* the library is loaded before a signal comes */
    struct sigaction action = {0};
    int onstack = strcmp(argv[1], "onstack") == 0;
    action.sa_handler = onstack ? small : large;
    action.sa_flags = SA_RESTART | (onstack ? SA_ONSTACK : 0);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer = {{0, 100}, {0, 100}};
    /* The first goes to whatever thread uses the processor, the second to any. */
    CHECK(setitimer(ITIMER_PROF, &timer, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);

    call(NULL);
    pthread_t others[MOST];
    for (int i = 1; i < threads; i++) {
        CHECK(pthread_create(&others[i], NULL, call, NULL) == 0);
    }
    call(NULL);
    for (int i = 1; i < threads; i++) {
        CHECK(pthread_join(others[i], NULL) == 0);
    }
    CHECK(signals > 0);
    return 0;
}

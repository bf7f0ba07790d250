/*
 * timeouts - a host that gives its own code a time limit with a timer and
 * siglongjmp, 1,000 times, and calls the library between. It never jumps out
 * of a library call: the handler asks a flag first.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "check.h"

enum { ROUNDS = 1000 };

static int pool[64 * KV_PER_BLOCK];
static sigjmp_buf back;
static volatile sig_atomic_t in_own_code;

static void handler(int sig) {
    (void)sig;
    if (in_own_code) {
        in_own_code = 0;
        siglongjmp(back, 1);
    }
}

/* A timer that may also fire in a library call; until it has, another follows. */
static void start_timer(int microseconds) {
    struct itimerval timer = {{0, 50}, {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void stop_timer(void) {
    struct itimerval none = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
}

int main(void) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    volatile unsigned long spins = 0;
    for (volatile int round = 0; round < ROUNDS; round++) {
        Sequence *seq = create_sequence(engine, round, 1);
        CHECK(seq != NULL);
        start_timer(1 + round % 100);
        for (int i = 1; i < 40; i++) {
            CHECK(append_kv(engine, round, i) == 0 && record_at(engine, seq, i) == i);
        }
        if (sigsetjmp(back, 1) == 0) {
            in_own_code = 1;
            for (;;) {
                spins++;
            }
        }
        stop_timer();
        check_conserved(engine);
        CHECK(free_sequence(engine, round) == 0);
    }
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

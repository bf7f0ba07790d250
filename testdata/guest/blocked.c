/*
 * blocked SIGNAL - the threads of the runtime must not take the host's signals. A
 * signal that a program of one thread has blocked stays pending, and a handler
 * runs on the program's own thread, where a siglongjmp may leave it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"

static int pool[8 * KV_PER_BLOCK];
static pthread_t own;
static volatile sig_atomic_t handled, elsewhere;

static void handler(int sig) {
    (void)sig;
    handled++;
    elsewhere += !pthread_equal(own, pthread_self());
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int sig = atoi(argv[1]);
    own = pthread_self();
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 1, 1) != NULL);
    sigset_t one, pending;
    struct sigaction action = {0};
    action.sa_handler = handler;
    CHECK(sigaction(sig, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    sigemptyset(&one);
    sigaddset(&one, sig);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    CHECK(kill(getpid(), sig) == 0);
    CHECK(append_kv(engine, 1, sig) == 0);
    usleep(2000);
    CHECK(handled == 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, sig) == 1);
    CHECK(sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
    CHECK(handled == 1 && elsewhere == 0);

    struct itimerval timer = {{0, 20}, {0, 20}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int i = 0; i < 15000; i++) {
        CHECK(append_kv(engine, 2, i) == -1);
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK(elsewhere == 0);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

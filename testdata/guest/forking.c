/*
 * forking MODE FORKS [FORKERS] - forks while other threads are in the library.
 *
 *   calling   4 threads call on one engine without a pause, others come and go;
 *             each child finds the engine whole and calls on it
 *   together  8 threads, or FORKERS, call and fork at once, and a handler for SIGURG stays
 *   handler   a signal handler forks, whatever it interrupts
 *   cancelled a thread that is being cancelled forks
 *   ending    threads call in the last round of their destructors, then main forks
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BLOCKS = 1024, CALLERS = 4, FORKERS = 8 };

static int pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *engine;
static _Atomic int done;
static _Atomic int first_id = 1000;
static int forks, forkers = FORKERS;

static void call_everything(int id) {
    CHECK(create_sequence(engine, id, 20) != NULL && fork_sequence(engine, id, id + 1) != NULL);
    for (int i = 0; i < 40; i++) {
        CHECK(append_kv(engine, id, i) == 0 && append_kv(engine, id + 1, i) == 0);
    }
    CHECK(free_sequence(engine, id) == 0 && free_sequence(engine, id + 1) == 0);
}

static void *keep_calling(void *unused) {
    int id = atomic_fetch_add(&first_id, 2);
    while (!atomic_load(&done)) {
        call_everything(id);
    }
    return unused;
}

static void *call_once(void *unused) {
    call_everything(atomic_fetch_add(&first_id, 2));
    return unused;
}

static void *come_and_go(void *unused) {
    while (!atomic_load(&done)) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, call_once, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    return unused;
}

static void wait_for(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "a child was ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    CHECK(status == 0);
}

static void bear(void) {
    pid_t child = fork();
    if (child != 0) {
        wait_for(child);
        return;
    }
    check_conserved(engine);
    call_everything(1);
    pid_t grandchild = fork();
    if (grandchild == 0) {
        call_everything(1);
        _exit(0);
    }
    wait_for(grandchild);
    CHECK(llm_destroy(engine) == 0);
    _exit(0);
}

static void run_calling(void) {
    pthread_t thread[CALLERS + 1];
    for (int i = 0; i <= CALLERS; i++) {
        CHECK(pthread_create(&thread[i], NULL, i < CALLERS ? keep_calling : come_and_go, NULL) == 0);
    }
    for (int i = 0; i < forks; i++) {
        bear();
    }
    atomic_store(&done, 1);
    for (int i = 0; i <= CALLERS; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void *keep_forking(void *unused) {
    for (int i = 0; i < forks; i++) {
        call_once(NULL);
        bear();
    }
    return unused;
}

static volatile sig_atomic_t urgent;

static void on_urgent(int signal) { urgent = signal; }

static void run_together(void) {
    struct sigaction mine = {.sa_handler = on_urgent}, now;
    CHECK(sigaction(SIGURG, &mine, NULL) == 0);
    pthread_t thread[FORKERS];
    for (int i = 0; i < forkers; i++) {
        CHECK(pthread_create(&thread[i], NULL, keep_forking, NULL) == 0);
    }
    for (int i = 0; i < forkers; i++) {
        pthread_join(thread[i], NULL);
    }
    CHECK(sigaction(SIGURG, NULL, &now) == 0 && now.sa_handler == on_urgent);
    CHECK(raise(SIGURG) == 0 && urgent == SIGURG);
}

static _Atomic int born;

/* The next alarm is set when a fork is over, so that the program goes on in between, however slow forks are. */
static void set_alarm(void) {
    const struct itimerval once = {.it_value = {.tv_usec = 5000}};
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void on_alarm(int signal) {
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    atomic_fetch_add(&born, child > 0 && status == 0);
    if (atomic_load(&born) < forks) {
        set_alarm();
    }
}

static void run_handler(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    set_alarm();
    while (atomic_load(&born) < forks) {
        call_once(NULL);
    }
}

static void fork_and_exit(void) {
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    wait_for(child);
}

static void *fork_cancelled(void *unused) {
    CHECK(pthread_cancel(pthread_self()) == 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    wait_for(child);
    return unused;
}

static void run_cancelled(void) {
    for (int i = 0; i < forks; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, fork_cancelled, NULL) == 0 && pthread_join(thread, NULL) == 0);
        call_once(NULL);
        fork_and_exit();
    }
}

static pthread_key_t rounds;

static void call_in_every_round(void *round) {
    call_once(NULL);
    pthread_setspecific(rounds, (char *)round + 1);
}

static void *end_calling(void *unused) {
    call_once(NULL);
    CHECK(pthread_setspecific(rounds, (void *)1) == 0);
    return unused;
}

static void run_ending(void) {
    pthread_attr_t large; /* so that a stack that is done with is unmapped */
    CHECK(pthread_attr_init(&large) == 0 && pthread_attr_setstacksize(&large, 64U << 20) == 0);
    call_once(NULL);
    CHECK(pthread_key_create(&rounds, call_in_every_round) == 0);
    for (int i = 0; i < forks; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &large, end_calling, NULL) == 0 && pthread_join(thread, NULL) == 0);
        fork_and_exit();
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3 || argc == 4);
    forks = atoi(argv[2]);
    if (argc == 4) {
        forkers = atoi(argv[3]);
        CHECK(forkers <= FORKERS);
    }
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    if (strcmp(argv[1], "calling") == 0) {
        run_calling();
    } else if (strcmp(argv[1], "together") == 0) {
        run_together();
    } else if (strcmp(argv[1], "handler") == 0) {
        run_handler();
    } else if (strcmp(argv[1], "cancelled") == 0) {
        run_cancelled();
    } else if (strcmp(argv[1], "ending") == 0) {
        run_ending();
    } else {
        CHECK(!"a mode");
    }
    check_conserved(engine);
    CHECK(engine->free_local_blocks == BLOCKS && llm_destroy(engine) == 0);
    return 0;
}

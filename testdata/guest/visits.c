/*
 * visits FORKS - a program that forks, and then exits. It ends with status 7 if the library
 * visits its threads (capi/visit.c) more often than it can need to: before a fork it
 * stops one thread, and at the exit under Memcheck it ends a few, all of which sleep.
 * Each visit installs a handler of SIGURG, and sigaction is this program's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 5000 };

static int pool[8 * KV_PER_BLOCK];
static _Atomic int visits;

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    int (*next)(int, const struct sigaction *, struct sigaction *);
    *(void **)&next = dlsym(RTLD_NEXT, "sigaction");
    if (number == SIGURG && action != NULL && action->sa_handler != SIG_DFL && ++visits > MOST) {
        static const char text[] = "the library visits its threads again and again\n";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        _exit(7);
    }
    return next(number, action, before);
}

int main(int argc, char **argv) {
    const int forks = argc > 1 ? atoi(argv[1]) : 0;
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 0, 20) != NULL);
    for (int i = 0; i < forks; i++) {
        int status;
        visits = 0;
        pid_t child = fork();
        if (child == 0) {
            CHECK(append_kv(engine, 0, i) == 0);
            _exit(0);
        }
        CHECK(visits > 0); /* else this program sees none of them */
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(llm_destroy(engine) == 0);
    visits = 0;
    return 0;
}

/*
 * grader MODE CHILDREN [busy] - forks a child per test, as graders do. Each
 * child makes every call and checks what comes out.
 *
 *   called   the parent has called the library before
 *   between  the parent calls between two forks
 *   live     200 sequences live in the parent; the child uses them, too
 *   again    the child forks a child that forks a child
 *   newborn  the parent forks at once after load, never having called; a fresh
 *            process for every 10 children, because only its first ms matter
 *   busy     with two processes beside it that never sleep
 */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifdef LOADED
void load_library(void);
#endif

enum { BLOCKS = 1024, SEQUENCES = 200, BROOD = 10 };

static int shared_pool[BLOCKS * KV_PER_BLOCK], own_pool[64 * KV_PER_BLOCK];

static void use_every_call(void) {
    LLMEngine *engine = llm_init(own_pool, sizeof own_pool);
    CHECK(engine != NULL);
    CHECK(create_sequence(engine, 1, 20) != NULL);
    CHECK(create_sequence(engine, 1, 20) == NULL);
    Sequence *child = fork_sequence(engine, 1, 2);
    CHECK(child != NULL);
    for (int i = 0; i < 100; i++) {
        CHECK(append_kv(engine, 1, i) == 0 && append_kv(engine, 2, -i) == 0);
        CHECK(record_at(engine, child, 20 + i) == -i);
    }
    CHECK(append_kv(engine, 3, 0) == -1);
#ifdef WITH_EXT
    CHECK(append_kv_run(engine, child, (const int[]){1, 2, 3}, 3) == 0);
    CHECK(append_kv_batch(engine, (Sequence *const[]){child, child}, (const int[]){4, 5}, 2) == 0);
    CHECK(record_at(engine, child, 124) == 5);
#endif
    check_conserved(engine);
    CHECK(free_sequence(engine, 1) == 0 && free_sequence(engine, 1) == -1);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
}

static LLMEngine *many_live(void) {
    LLMEngine *engine = llm_init(shared_pool, sizeof shared_pool);
    CHECK(engine != NULL);
    for (int id = 0; id < SEQUENCES; id++) {
        CHECK(create_sequence(engine, id, 1) != NULL);
    }
    for (int id = 0; id < SEQUENCES; id++) {
        CHECK(append_kv(engine, id, id) == 0);
    }
    return engine;
}

static void use_live(LLMEngine *engine) {
    for (int id = SEQUENCES - 1; id >= 0; id -= 3) {
        Sequence *seq = plain_find(engine, id);
        CHECK(append_kv(engine, id, 7 * id) == 0);
        CHECK(seq->kv_count == 3 && record_at(engine, seq, 2) == 7 * id);
    }
    CHECK(free_sequence(engine, 150) == 0 && append_kv(engine, 150, 1) == -1);
    CHECK(fork_sequence(engine, 151, 150) != NULL && append_kv(engine, 150, 1) == 0);
    check_conserved(engine);
}

static void wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "a child was ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    CHECK(status == 0);
}

/* Forks generations children inside each other. */
static void bear(LLMEngine *live, int generations) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        wait_for(child);
        return;
    }
    use_every_call();
    if (live != NULL) {
        use_live(live);
    }
    if (generations > 1) {
        bear(live, generations - 1);
    }
    use_every_call();
    _exit(0);
}

static pid_t never_sleep(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed check ends the parent early */
        for (volatile unsigned long i = 0;; i++) {
        }
    }
    return child;
}

static void run_newborn(int children) {
    for (int i = 0; i < children; i += BROOD) {
        char *command[] = {"grader", "brood", "10", NULL};
        pid_t child;
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, command, environ) == 0);
        wait_for(child);
    }
}

int main(int argc, char **argv) {
#ifdef LOADED
    load_library();
#endif
    CHECK(argc >= 3);
    const char *mode = argv[1];
    int children = atoi(argv[2]);
    if (strcmp(mode, "brood") == 0) {
        for (int i = 0; i < BROOD; i++) {
            bear(NULL, 1);
        }
        return 0;
    }
    pid_t busy[2] = {0, 0};
    if (argc > 3) {
        busy[0] = never_sleep();
        busy[1] = never_sleep();
    }
    if (strcmp(mode, "newborn") == 0) {
        run_newborn(children);
    } else {
        use_every_call();
        LLMEngine *live = strcmp(mode, "live") == 0 ? many_live() : NULL;
        for (int i = 0; i < children; i++) {
            bear(live, strcmp(mode, "again") == 0 ? 3 : 1);
            if (strcmp(mode, "between") == 0) {
                use_every_call();
            }
        }
        if (live != NULL) {
            use_live(live);
            CHECK(llm_destroy(live) == 0);
        }
    }
    for (int i = 0; i < 2 && busy[i] > 0; i++) {
        kill(busy[i], SIGKILL);
        waitpid(busy[i], NULL, 0);
    }
    return 0;
}

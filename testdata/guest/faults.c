/*
 * faults before|after onstack|plain - a host that catches its own segmentation
 * faults: 1,000 in a row, with library calls between. The handler is installed
 * before or after the first call, and before the library is there at all when
 * the first call loads it.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "check.h"

enum { FAULTS = 1000 };

static int pool[64 * KV_PER_BLOCK];
static sigjmp_buf back;
static volatile char *forbidden;
static volatile sig_atomic_t caught;

static void handler(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)context;
    caught += info->si_addr == (void *)forbidden;
    siglongjmp(back, 1);
}

static void install(int onstack) {
    struct sigaction action = {0};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | (onstack ? SA_ONSTACK : 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int before = strcmp(argv[1], "before") == 0;
    int onstack = strcmp(argv[2], "onstack") == 0;
    stack_t stack = {0};
    stack.ss_size = 1 << 16;
    stack.ss_sp = malloc(stack.ss_size);
    CHECK(stack.ss_sp != NULL && (!onstack || sigaltstack(&stack, NULL) == 0));
    forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(forbidden != MAP_FAILED);

    if (before) {
        install(onstack);
    }
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    Sequence *seq = create_sequence(engine, 1, 1);
    CHECK(seq != NULL);
    if (!before) {
        install(onstack);
    }
    for (volatile int i = 0; i < FAULTS; i++) {
        if (sigsetjmp(back, 1) == 0) {
            *forbidden = 1;
            CHECK(!"a write to forbidden memory faults");
        }
        CHECK(append_kv(engine, 1, i) == 0 || seq->kv_count == 64 * KV_PER_BLOCK);
        if (seq->kv_count == 64 * KV_PER_BLOCK) {
            CHECK(free_sequence(engine, 1) == 0);
            CHECK((seq = create_sequence(engine, 1, 1)) != NULL);
        }
    }
    CHECK(caught == FAULTS);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
    if (onstack) {
        stack.ss_flags = SS_DISABLE;
        sigaltstack(&stack, NULL);
    }
    free(stack.ss_sp);
    return 0;
}

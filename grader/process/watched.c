/*
 * The process that Memcheck watches: the submission with the C library's heap. It plays
 * whole traces from a file and prints nothing; Memcheck reports what is wrong. Each pool
 * is an allocation, so that Memcheck detects a write outside it.
 *
 *   watched STEPS    an open file descriptor, struct step after struct step
 *
 * The grader sees how far STEPS was read; if it was read to its end, every call
 * returned. Valgrind runs in this process, so a submission that generates code can
 * change Valgrind's report, as it can change the events of grader/process/runner.c. It
 * can thereby hide a leak or a bad access, but not a wrong state.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "llm_memory.h"

#include "prints.c"
#include "tester.c"

enum call { INIT, CREATE, FORK, APPEND, FREE, DESTROY, END, LEAVE, CHANGE };

/* The changes that the tester makes, in the order of those in internal/homework/course/oracle. */
enum change {
    NEW_ENGINE = CHANGE, DROP_ENGINE, NEW_SEQUENCE, DROP_SEQUENCE, UNLINKED, RENAMED, COUNTED, NEW_TABLE, MOVED, RELOCATED,
    MAPPED, UNMAPPED, RECORDED,
};

struct step {
    uint32_t call;
    int32_t engine; /* -1: NULL */
    int32_t a, b, c, n;
};

enum { ENGINES = 4, MOST_KEPT = 1024 };

static LLMEngine *engines[ENGINES];
static void *pools[ENGINES];
static Sequence *kept[MOST_KEPT]; /* out of their lists */
static int kept_used;
static int by_submission; /* frees what a trace leaves, because it allocates in another way than the tester */

static void drop(LLMEngine *engine) {
    if (by_submission) {
        llm_destroy(engine);
    } else {
        drop_engine(engine);
    }
}

/* What a trace leaves is freed. */
static void end(void) {
    for (int i = 0; i < kept_used; i++) {
        for (int j = 0; j < L1_PT_SIZE; j++) {
            free(kept[i]->block_table[j]);
        }
        free(kept[i]->block_table);
        free(kept[i]);
        kept[i] = NULL;
    }
    kept_used = 0;
    for (int i = 0; i < ENGINES; i++) {
        if (engines[i] != NULL) {
            drop(engines[i]);
        }
        free(pools[i]);
        engines[i] = NULL;
        pools[i] = NULL;
    }
}

static void *new_pool(int i, int32_t size) {
    if (engines[i] != NULL) {
        drop(engines[i]);
        engines[i] = NULL;
    }
    free(pools[i]);
    pools[i] = malloc(size > 0 ? (size_t)size : 1);
    return pools[i];
}

static void init(int i, int32_t size) {
    if (size < 0) {
        llm_init(NULL, 640);
        return;
    }
    void *pool = new_pool(i, size);
    engines[i] = llm_init(pool, (size_t)size);
}

static void change(const struct step *s, LLMEngine *engine) {
    switch ((int)s->call) {
    case NEW_ENGINE: {
        void *pool = new_pool(s->engine, s->a);
        engines[s->engine] = given_engine(memset(pool, 0, (size_t)s->a), (size_t)s->a);
        break;
    }
    case DROP_ENGINE:
        drop_engine(engine);
        engines[s->engine] = NULL;
        break;
    case NEW_SEQUENCE:
        given_sequence(engine, s->a, s->b);
        break;
    case DROP_SEQUENCE:
        drop_sequence(engine, s->a);
        break;
    case UNLINKED:
        if (kept_used < MOST_KEPT) {
            kept[kept_used++] = find_given(engine, s->a);
        }
        take_out(engine, s->a);
        break;
    case RENAMED:
        rename_sequence(engine, s->a, s->b);
        break;
    case COUNTED:
        set_kv_count(engine, s->a, s->b);
        break;
    case NEW_TABLE:
        given_table(engine, s->a, s->b);
        break;
    case MOVED:
        exchange_tables(engine, s->a, s->b, s->c);
        break;
    case RELOCATED:
        relocate(engine, s->a, s->b);
        break;
    case MAPPED:
        map_blocks(engine, s->a, s->b, s->c, s->n);
        break;
    case UNMAPPED:
        unmap_block(engine, s->a, s->b);
        break;
    default:
        set_record(engine, s->a, s->b, s->c);
        break;
    }
}

static void play(const struct step *s) {
    LLMEngine *engine = s->engine >= 0 && s->engine < ENGINES ? engines[s->engine] : NULL;
    switch (s->call) {
    case INIT:
        init(s->engine, s->a);
        break;
    case CREATE:
        create_sequence(engine, s->a, s->b);
        break;
    case FORK:
        fork_sequence(engine, s->a, s->b);
        break;
    case APPEND:
        append_kv(engine, s->a, s->b);
        break;
    case FREE:
        free_sequence(engine, s->a);
        break;
    case DESTROY:
        llm_destroy(engine);
        if (engine != NULL) {
            engines[s->engine] = NULL;
        }
        break;
    case END:
        end();
        by_submission = s->a;
        break;
    default:
        change(s, engine);
        break;
    }
}

/* Of the descriptors 3 to 255 only the steps stay open, above all not Valgrind's report. */
static void close_others(int steps) {
    for (int fd = 3; fd < 256; fd++) {
        if (fd != steps) {
            close(fd);
        }
    }
}

/* Forbids what Valgrind no longer needs: to execute another program, which Valgrind
 * would not watch, and to write files. */
static void lock(void) {
    enum { LOAD = BPF_LD | BPF_W | BPF_ABS, EQUAL = BPF_JMP | BPF_JEQ | BPF_K, ANY_OF = BPF_JMP | BPF_JSET | BPF_K, GIVE = BPF_RET | BPF_K };
    enum { NUMBER = offsetof(struct seccomp_data, nr), SECOND = offsetof(struct seccomp_data, args[1]), THIRD = offsetof(struct seccomp_data, args[2]) };
    struct sock_filter filter[] = {
        BPF_STMT(LOAD, NUMBER),
        BPF_JUMP(EQUAL, SYS_execve, 7, 0), /* to the refusal */
        BPF_JUMP(EQUAL, SYS_prctl, 6, 0),
        BPF_JUMP(EQUAL, SYS_openat, 3, 0),
#ifdef SYS_open
        BPF_JUMP(EQUAL, SYS_open, 0, 5),
#else
        BPF_STMT(GIVE, SECCOMP_RET_ALLOW),
#endif
        BPF_STMT(LOAD, SECOND),
        BPF_JUMP(ANY_OF, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 2, 3),
        BPF_STMT(LOAD, THIRD),
        BPF_JUMP(ANY_OF, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1),
        BPF_STMT(GIVE, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(GIVE, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0); /* a kernel without has said so (launch.c) */
}

int main(int argc, char **argv) {
    int steps = argc == 2 ? atoi(argv[1]) : -1;
    close_others(steps);
    lock();
    struct step step;
    while (read(steps, &step, sizeof step) == (ssize_t)sizeof step && step.call != LEAVE) {
        play(&step);
    }
    return 0;
}

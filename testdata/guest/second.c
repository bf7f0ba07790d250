/*
 * second PROCESSES, second 0 [SEED [ENGINES]] - the moment in which a second thread
 * makes its first call on an engine while the first is calling in a loop. Both append
 * to the same sequence, so if they were ever inside at once, a record or a count is
 * lost. The moment exists once per lock, of which the library has 64: hence many
 * engines in each of many processes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { ENGINES = 96, BLOCKS = 64, FULL = BLOCKS * KV_PER_BLOCK };

static int pools[ENGINES][FULL];
static LLMEngine *engines[ENGINES];
static int used = ENGINES;
static atomic_int turn;             /* the engine on which the first thread calls, from 1 */
static atomic_int delay;            /* how long the second waits before it comes */
static atomic_int seconds[ENGINES]; /* the records that the second has written */
static atomic_int ready;            /* the engine with which the second is done, from 1 */

/* Spins, because the moment is short; but on a busy machine the other thread needs the processor. */
static void await(atomic_int *value, int wanted) {
    for (int spins = 0; atomic_load(value) != wanted; spins++) {
        if (spins > 2000) {
            sched_yield();
        }
    }
}

static void *second(void *unused) {
    for (int i = 0; i < used; i++) {
        await(&turn, i + 1);
        for (volatile int spin = atomic_load(&delay); spin > 0; spin--) {
        }
        int done = 0;
        while (done < 50 && append_kv(engines[i], 1, -1 - done) == 0) {
            done++;
        }
        atomic_store(&seconds[i], done);
        atomic_store(&ready, i + 1);
    }
    return unused;
}

static void meet(int i, int wait) {
    Sequence *seq = sequence_at(engines[i]->active_seqs.next);
    int firsts = 0;
    atomic_store(&delay, wait);
    atomic_store(&turn, i + 1);
    while (append_kv(engines[i], 1, firsts) == 0) {
        firsts++;
    }
    await(&ready, i + 1);
    int others = atomic_load(&seconds[i]);
    CHECK(seq->kv_count == FULL && firsts + others == FULL - 1);
    int first = 0, other = 0;
    for (int position = 1; position < FULL; position++) {
        int record = record_at(engines[i], seq, position);
        if (record >= 0) {
            CHECK(record == first++);
        } else {
            CHECK(record == -1 - other++);
        }
    }
    CHECK(first == firsts && other == others);
    check_conserved(engines[i]);
}

static void run(int seed) {
    for (int i = 0; i < used; i++) {
        engines[i] = llm_init(pools[i], sizeof pools[i]);
        CHECK(engines[i] != NULL && create_sequence(engines[i], 1, 1) != NULL);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
    for (int i = 0; i < used; i++) {
        meet(i, (i * 7919 + seed * 104729) % 20000);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < used; i++) {
        CHECK(llm_destroy(engines[i]) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    int processes = atoi(argv[1]);
    if (processes == 0) {
        used = argc > 3 ? atoi(argv[3]) : ENGINES;
        CHECK(used > 0 && used <= ENGINES);
        run(argc > 2 ? atoi(argv[2]) : 1);
        return 0;
    }
    for (int i = 0; i < processes; i++) {
        char seed[12];
        snprintf(seed, sizeof seed, "%d", i);
        char *command[] = {"second", "0", seed, NULL};
        pid_t child;
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, command, environ) == 0);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}

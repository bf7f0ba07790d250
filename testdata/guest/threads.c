/*
 * threads MODE ROUNDS - calls from many threads; the state is checked at the end.
 *
 *   own     8 threads with an engine each
 *   one     8 threads on one engine: appends, create, free, fork
 *   short   200 threads, one after another
 *   crowd   64 threads at once
 *   owner   the first thread calls alone, a second alone, then both at once
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "check.h"

enum { MOST = 200, BLOCKS = 2048, WORKERS = 8, CROWD = 64 };

struct job {
    LLMEngine *engine;
    int first_id; /* ids from here on are this thread's */
    int rounds;
    int pool[BLOCKS / WORKERS * KV_PER_BLOCK];
};

static int pool[BLOCKS * KV_PER_BLOCK];
static struct job jobs[MOST];

/* Works with sequences of its own on an engine that others may use, too. */
static void work(LLMEngine *engine, int first_id, int rounds) {
    int keep = first_id;
    Sequence *kept = create_sequence(engine, keep, 1);
    CHECK(kept != NULL);
    for (int i = 0; i < rounds; i++) {
        int fresh = first_id + 1;
        Sequence *seq = create_sequence(engine, fresh, 1 + i % 30);
        CHECK(seq != NULL && seq->seq_id == fresh);
        CHECK(create_sequence(engine, fresh, 1) == NULL);
        Sequence *child = fork_sequence(engine, fresh, fresh + 1);
        CHECK(child != NULL);
        for (int k = 0; k < 10; k++) {
            CHECK(append_kv(engine, fresh + 1, first_id + k) == 0);
            CHECK(append_kv(engine, fresh, -k) == 0);
            CHECK(record_at(engine, child, child->kv_count - 1) == first_id + k);
            CHECK(record_at(engine, seq, seq->kv_count - 1) == -k);
        }
        if (append_kv(engine, keep, i) == 0) {
            CHECK(record_at(engine, kept, kept->kv_count - 1) == i);
        }
        CHECK(free_sequence(engine, fresh) == 0 && free_sequence(engine, fresh + 1) == 0);
        CHECK(append_kv(engine, fresh, 0) == -1);
    }
}

static void *run(void *arg) {
    struct job *job = arg;
    LLMEngine *engine = job->engine;
    if (engine == NULL) {
        CHECK((engine = llm_init(job->pool, sizeof job->pool)) != NULL);
    }
    work(engine, job->first_id, job->rounds);
    if (job->engine == NULL) {
        check_conserved(engine);
        CHECK(llm_destroy(engine) == 0);
    }
    return NULL;
}

static void run_at_once(int n, LLMEngine *engine, int rounds) {
    static pthread_t threads[MOST];
    for (int i = 0; i < n; i++) {
        jobs[i].engine = engine;
        jobs[i].first_id = 10 * i;
        jobs[i].rounds = rounds;
        CHECK(pthread_create(&threads[i], NULL, run, &jobs[i]) == 0);
    }
    for (int i = 0; i < n; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void *work_second(void *engine) {
    work(engine, 1000, jobs[0].rounds);
    return NULL;
}

static void *work_third(void *engine) {
    work(engine, 2000, jobs[0].rounds);
    return NULL;
}

/* On several engines, because a lock that two threads have used stays one. */
static void first_and_second(int rounds) {
    jobs[0].rounds = rounds;
    for (int i = 0; i < 16; i++) {
        LLMEngine *engine = llm_init(pool, sizeof pool);
        CHECK(engine != NULL);
        pthread_t second;
        work(engine, 0, rounds);
        CHECK(pthread_create(&second, NULL, work_second, engine) == 0 && pthread_join(second, NULL) == 0);
        CHECK(pthread_create(&second, NULL, work_third, engine) == 0);
        work(engine, 3000, rounds);
        CHECK(pthread_join(second, NULL) == 0);
        check_conserved(engine);
        CHECK(llm_destroy(engine) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int rounds = atoi(argv[2]);
    LLMEngine *engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL);
    if (strcmp(argv[1], "own") == 0) {
        run_at_once(WORKERS, NULL, rounds);
    } else if (strcmp(argv[1], "one") == 0) {
        run_at_once(WORKERS, engine, rounds);
    } else if (strcmp(argv[1], "crowd") == 0) {
        run_at_once(CROWD, engine, rounds);
    } else if (strcmp(argv[1], "owner") == 0) {
        first_and_second(rounds);
    } else {
        for (int i = 0; i < MOST; i++) {
            jobs[i] = (struct job){.engine = engine, .first_id = 10 * i, .rounds = rounds};
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, run, &jobs[i]) == 0 && pthread_join(thread, NULL) == 0);
        }
    }
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}

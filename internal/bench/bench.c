/*
 * bench - the table of `make bench`: libllm_memory beside the plain-C
 * submission, in one process and one run, sample by sample in turn.
 *
 *   bench LIBRARY PLAIN
 *
 * LIBRARY is built with -tags bench (it also exports an empty call and a count
 * of Go heap allocations), PLAIN is the submission as a shared object. Times are
 * processor time of the thread, so that other programs on the machine disturb less.
 * Every figure is the median of SAMPLES samples, every ratio the median of the ratios
 * within a sample, because the machine's speed drifts. "to reach" is a goal, never
 * a test.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llm_memory_ext.h"

enum { SAMPLES = 9, MOST_BLOCKS = 8192 };

struct api {
    LLMEngine *(*init)(void *, size_t);
    Sequence *(*create)(LLMEngine *, int, int);
    Sequence *(*fork)(LLMEngine *, int, int);
    int (*append)(LLMEngine *, int, int);
    int (*release)(LLMEngine *, int);
    int (*destroy)(LLMEngine *);
    int (*batch)(LLMEngine *, Sequence *const *, const int *, int);
    int (*run)(LLMEngine *, Sequence *, const int *, int);
    int (*empty)(LLMEngine *, int, int);
    uint64_t (*mallocs)(void);
};

static struct api plain, ours;

static void die(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static void must(int ok, const char *what) {
    if (!ok) {
        die(what);
    }
}

static void symbol(void *lib, const char *name, void *to, int required) {
    void *at = dlsym(lib, name);
    must(at != NULL || !required, dlerror() == NULL ? name : "a function is missing");
    memcpy(to, &at, sizeof at);
}

static void load(struct api *a, const char *path, int whole) {
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    must(lib != NULL, "cannot load a library");
    symbol(lib, "llm_init", &a->init, 1);
    symbol(lib, "create_sequence", &a->create, 1);
    symbol(lib, "fork_sequence", &a->fork, 1);
    symbol(lib, "append_kv", &a->append, 1);
    symbol(lib, "free_sequence", &a->release, 1);
    symbol(lib, "llm_destroy", &a->destroy, 1);
    symbol(lib, "append_kv_batch", &a->batch, whole);
    symbol(lib, "append_kv_run", &a->run, whole);
    symbol(lib, "llm_bench_empty", &a->empty, whole);
    symbol(lib, "llm_bench_mallocs", &a->mallocs, whole);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The time that reading the clock takes, which no interval includes. */
static double clock_cost;

static double since(double t) { return now() - t - clock_cost; }

static void measure_clock(void) {
    double least = 1e9;
    for (int i = 0; i < 1000; i++) {
        double took = since(now());
        least = took < least ? took : least;
    }
    clock_cost = least;
}

static uint64_t seed = 1;

static uint32_t rnd(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v) {
    qsort(v, SAMPLES, sizeof *v, by_value);
    return v[SAMPLES / 2];
}

/* A sample returns nanoseconds for one unit of the work. */
typedef double sample(const struct api *a, int n);

static double empty_sample(int n) {
    double t = now();
    for (int i = 0; i < n; i++) {
        ours.empty(NULL, i, i);
    }
    return since(t) / n;
}

struct result {
    double plain, ours, empty; /* ns a unit */
    double to_plain, to_empty;
};

static struct result measure(sample *work, int n) {
    double p[SAMPLES], o[SAMPLES], e[SAMPLES], op[SAMPLES], oe[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        p[i] = work(&plain, n);
        e[i] = empty_sample(50000);
        o[i] = work(&ours, n);
        e[i] = (e[i] + empty_sample(50000)) / 2;
        op[i] = o[i] / p[i];
        oe[i] = o[i] / e[i];
    }
    return (struct result){median(p), median(o), median(e), median(op), median(oe)};
}

/* append_kv over n live sequences that grow from 1 record to their share of MOST_BLOCKS. */
enum order { ROUND_ROBIN, RANDOM };

static void *pool;

static int records_each(int n) {
    int blocks = MOST_BLOCKS / n > MAX_LOGICAL_BLOCKS ? MAX_LOGICAL_BLOCKS : MOST_BLOCKS / n;
    return blocks * KV_PER_BLOCK - 1;
}

static void shuffle(int *ids, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(rnd() % (uint32_t)(i + 1)), t = ids[i];
        ids[i] = ids[j];
        ids[j] = t;
    }
}

/* The indices of the sequences to which the calls append: `each` calls for each of n sequences. */
static int *schedule(int n, int each, enum order order) {
    int total = n * each;
    int *ids = malloc((size_t)total * sizeof *ids);
    must(ids != NULL, "memory");
    for (int i = 0; i < total; i++) {
        ids[i] = i % n;
    }
    if (order == RANDOM) {
        shuffle(ids, total);
    }
    return ids;
}

static LLMEngine *filled(const struct api *a, int n, Sequence **seqs) {
    LLMEngine *e = a->init(pool, (size_t)MOST_BLOCKS * BLOCK_SIZE);
    must(e != NULL, "llm_init");
    for (int i = 0; i < n; i++) {
        Sequence *s = a->create(e, i, 1);
        must(s != NULL, "create_sequence");
        if (seqs != NULL) {
            seqs[i] = s;
        }
    }
    return e;
}

static double append_sample(const struct api *a, int n, enum order order) {
    int total = n * records_each(n), rounds = 1 + 100000 / total, failed = 0;
    int *ids = schedule(n, records_each(n), order);
    double spent = 0;
    for (int r = 0; r < rounds; r++) {
        LLMEngine *e = filled(a, n, NULL);
        for (int i = 0; i < n; i++) { /* not timed: caches and hints as in a running program */
            failed |= a->append(e, i, 0);
        }
        double t = now();
        for (int i = n; i < total; i++) {
            failed |= a->append(e, ids[order == RANDOM ? i - n : i], i);
        }
        spent += since(t);
        a->destroy(e);
    }
    free(ids);
    (void)failed; /* a random schedule may append one record more than fits; that call is timed too */
    return spent / ((double)rounds * (total - n));
}

static double round_robin(const struct api *a, int n) { return append_sample(a, n, ROUND_ROBIN); }
static double at_random(const struct api *a, int n) { return append_sample(a, n, RANDOM); }

/* append_kv over n new sequences: EACH calls for each of them, the first one included. */
enum { EACH = 12 };

static double first_sample(const struct api *a, int n, enum order order) {
    int total = n * EACH, rounds = 1 + 100000 / total, failed = 0;
    int *ids = schedule(n, EACH, order);
    double spent = 0;
    for (int r = 0; r < rounds; r++) {
        LLMEngine *e = filled(a, n, NULL);
        double t = now();
        for (int i = 0; i < total; i++) {
            failed |= a->append(e, ids[i], i);
        }
        spent += since(t);
        a->destroy(e);
    }
    free(ids);
    must(failed == 0, "append_kv");
    return spent / ((double)rounds * total);
}

static double first_round_robin(const struct api *a, int n) { return first_sample(a, n, ROUND_ROBIN); }
static double first_at_random(const struct api *a, int n) { return first_sample(a, n, RANDOM); }

/*
 * n sequences are live. In each round, a random one is freed, a new one is created,
 * and EACH records are appended to random ones.
 */
static double mix_sample(const struct api *a, int n) {
    int rounds = 1000, next = n, failed = 0;
    int *ids = malloc((size_t)n * sizeof *ids);
    must(ids != NULL, "memory");
    LLMEngine *e = a->init(pool, (size_t)8 * MOST_BLOCKS * BLOCK_SIZE);
    for (int i = 0; i < n; i++) {
        ids[i] = i;
        must(a->create(e, i, 1) != NULL, "create_sequence");
    }
    double t = now();
    for (int r = 0; r < rounds; r++) {
        int place = (int)(rnd() % (uint32_t)n);
        failed |= a->release(e, ids[place]);
        ids[place] = next++;
        failed |= a->create(e, ids[place], 1) == NULL;
        for (int i = 0; i < EACH; i++) {
            failed |= a->append(e, ids[rnd() % (uint32_t)n], i);
        }
    }
    double spent = since(t);
    must(failed == 0, "a call of the mix");
    a->destroy(e);
    free(ids);
    return spent / rounds;
}

/* Creating one more sequence when n are live: MORE are created, and freed again outside the timed interval. */
enum { MORE = 64 };

static double grow_sample(const struct api *a, int n, int forks) {
    LLMEngine *e = filled(a, n, NULL);
    int rounds = n < 1000 ? 200 : 40, failed = 0;
    double spent = 0;
    for (int r = 0; r < rounds; r++) {
        double t = now();
        for (int i = n; i < n + MORE; i++) {
            failed |= forks ? a->fork(e, (int)(rnd() % (uint32_t)n), i) == NULL : a->create(e, i, 1) == NULL;
        }
        spent += since(t);
        for (int i = n + MORE - 1; i >= n; i--) {
            failed |= a->release(e, i);
        }
    }
    must(failed == 0, "create_sequence or fork_sequence");
    a->destroy(e);
    return spent / ((double)rounds * MORE);
}

static double creates(const struct api *a, int n) { return grow_sample(a, n, 0); }
static double forks(const struct api *a, int n) { return grow_sample(a, n, 1); }

/* Appending one record to each of n sequences: one call a step, in plain C n calls. */
static double batch_sample(const struct api *a, int n) {
    Sequence **seqs = malloc((size_t)n * sizeof(Sequence *));
    int *data = malloc((size_t)n * sizeof *data);
    must(seqs != NULL && data != NULL, "memory");
    int steps = records_each(n), rounds = 1 + 100000 / (n * steps);
    double spent = 0;
    for (int r = 0; r < rounds; r++) {
        LLMEngine *e = filled(a, n, seqs);
        for (int i = n - 1; i > 0; i--) {
            int j = (int)(rnd() % (uint32_t)(i + 1));
            Sequence *t = seqs[i];
            seqs[i] = seqs[j];
            seqs[j] = t;
            data[i] = i;
        }
        data[0] = 0;
        double t = now();
        for (int s = 0; s < steps; s++) {
            if (a->batch != NULL) {
                must(a->batch(e, seqs, data, n) == 0, "append_kv_batch");
            } else {
                for (int i = 0; i < n; i++) {
                    must(a->append(e, seqs[i]->seq_id, data[i]) == 0, "append_kv");
                }
            }
        }
        spent += since(t);
        a->destroy(e);
    }
    free(seqs);
    free(data);
    return spent / ((double)rounds * steps * n);
}

/* Appending n records to one sequence at a time, until it is full. */
static double run_sample(const struct api *a, int n) {
    int data[4096], calls = MAX_LOGICAL_BLOCKS * KV_PER_BLOCK / n, rounds = 100;
    double spent = 0;
    for (int i = 0; i < n; i++) {
        data[i] = i;
    }
    for (int r = 0; r < rounds; r++) {
        LLMEngine *e = a->init(pool, (size_t)MAX_LOGICAL_BLOCKS * BLOCK_SIZE);
        Sequence *s = a->create(e, 1, 1);
        s->kv_count = 0;
        double t = now();
        for (int c = 0; c < calls; c++) {
            if (a->run != NULL) {
                must(a->run(e, s, data, n) == 0, "append_kv_run");
            } else {
                for (int i = 0; i < n; i++) {
                    a->append(e, 1, data[i]);
                }
            }
        }
        spent += since(t);
        a->destroy(e);
    }
    return spent / ((double)rounds * calls * n);
}

/* create + free of 256 blocks in a pool of n blocks; 99 % full beyond 1,024. */
static double create_sample(const struct api *a, int n) {
    static LLMEngine *engines[2];
    static int sizes[2];
    int which = a == &ours;
    if (sizes[which] != n) { /* filled by hand: with calls, plain C takes minutes to fill a million blocks */
        if (engines[which] != NULL) {
            a->destroy(engines[which]);
        }
        LLMEngine *e = a->init(pool, (size_t)n * BLOCK_SIZE);
        must(e != NULL, "llm_init");
        if (n > 1024) {
            int gap = n / 100;
            for (int i = 0; i < n - gap; i++) {
                e->ref_count[i] = 1;
            }
            e->free_local_blocks = gap;
        }
        engines[which] = e;
        sizes[which] = n;
    }
    LLMEngine *e = engines[which];
    int rounds = n <= 1024 ? 500 : n <= 65536 ? 10 : 1;
    double t = now();
    for (int r = 0; r < rounds; r++) {
        must(a->create(e, 1, MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) != NULL, "create_sequence");
        must(a->release(e, 1) == 0, "free_sequence");
    }
    return since(t) / rounds;
}

/*
 * The three calls of a branch over 16 blocks: CHILDREN children are forked, each
 * appends to the shared tail, and each is freed. The time of each of the three calls
 * is measured over all children, because one call is too short for the clock.
 */
enum { CHILDREN = 16 };

static double branch_sample(const struct api *a, int which) {
    double spent[3] = {0};
    int rounds = 3000;
    LLMEngine *e = a->init(pool, (size_t)1024 * BLOCK_SIZE);
    must(e != NULL && a->create(e, 0, 16 * KV_PER_BLOCK - 8) != NULL, "create_sequence");
    for (int r = 0; r < rounds; r++) {
        int failed = 0;
        double t0 = now();
        for (int c = 1; c <= CHILDREN; c++) {
            failed |= a->fork(e, 0, c) == NULL;
        }
        double t1 = now();
        for (int c = 1; c <= CHILDREN; c++) {
            failed |= a->append(e, c, c);
        }
        double t2 = now();
        for (int c = 1; c <= CHILDREN; c++) {
            failed |= a->release(e, c);
        }
        double t3 = now();
        must(failed == 0, "fork, append or free");
        spent[0] += t1 - t0 - clock_cost;
        spent[1] += t2 - t1 - clock_cost;
        spent[2] += t3 - t2 - clock_cost;
    }
    a->destroy(e);
    return spent[which] / (rounds * (double)CHILDREN);
}

/* Every call, on a short list and on one that is long enough for hints. */
static double allocations_per_call(int rounds) {
    uint64_t before = ours.mallocs();
    long calls = 0;
    for (int i = 0; i < rounds; i++) {
        int n = i % 2 == 0 ? 2 : 40;
        LLMEngine *e = ours.init(pool, (size_t)256 * BLOCK_SIZE);
        Sequence *s = ours.create(e, 0, 17);
        for (int c = 1; c < n; c++) {
            ours.fork(e, 0, c);
            ours.append(e, c, 5);
        }
        ours.batch(e, &s, &i, 1);
        ours.run(e, s, &i, 1);
        ours.release(e, n - 1);
        ours.destroy(e);
        calls += 4 + 2 * n;
    }
    return (double)(ours.mallocs() - before) / (double)calls;
}

static long resident_kib(void) {
    long pages = 0, skip = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    must(f != NULL && fscanf(f, "%ld %ld", &skip, &pages) == 2, "/proc/self/statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void row(const char *work, struct result m, double ratio, const char *against, const char *reach) {
    printf("%-46s %11.1f %9.1f %7.1f   %7.3f x %-11s %s\n", work, m.plain, m.ours, m.empty, ratio, against, reach);
    fflush(stdout);
}

static void against_empty(const char *name, sample *of, int n, const char *reach) {
    char work[64];
    snprintf(work, sizeof work, "append_kv, %s, %d live", name, n);
    struct result m = measure(of, n);
    row(work, m, m.to_empty, "empty call", reach);
}

static void against_plain(const char *work, sample *of, int n, const char *reach) {
    struct result m = measure(of, n);
    row(work, m, m.to_plain, "plain C", reach);
}

int main(int argc, char **argv) {
    must(argc == 3, "usage: bench LIBRARY PLAIN");
    measure_clock();
    long before = resident_kib();
    load(&ours, argv[1], 1);
    usleep(20000);
    long rest = resident_kib() - before;
    load(&plain, argv[2], 0);
    pool = aligned_alloc(64, (size_t)(1 << 20) * BLOCK_SIZE);
    must(pool != NULL, "memory");
    memset(pool, 0, (size_t)(1 << 20) * BLOCK_SIZE);

    printf("%-46s %11s %9s %7s   %9s %-11s %s\n", "median ns a unit", "plain C", "this", "empty", "ratio", "to",
        "to reach");
    for (int n = 1; n <= 4096; n *= 8) {
        against_empty("round-robin", round_robin, n, "<= 1.6");
    }
    for (int n = 8; n <= 512; n *= 8) {
        against_empty("random ids", at_random, n, "<= 1.6");
    }
    against_empty("random ids", at_random, 4096, "<= 2.2");
    for (int n = 1; n <= 4096; n *= 8) {
        against_empty("round-robin, first included", first_round_robin, n, n < 4096 ? "<= 1.6" : "<= 2.2");
    }
    for (int n = 8; n <= 4096; n *= 8) {
        against_empty("random ids, first included", first_at_random, n, n < 4096 ? "<= 1.6" : "<= 2.2");
    }
    against_plain("create, 12 appends, free, 4096 live", mix_sample, 4096, "<= 0.15");
    against_plain("create_sequence, 64 live", creates, 64, "");
    against_plain("create_sequence, 512 live", creates, 512, "< 1");
    against_plain("create_sequence, 4096 live", creates, 4096, "<= 0.6");
    against_plain("fork_sequence, 512 live", forks, 512, "< 1");
    against_plain("fork_sequence, 4096 live", forks, 4096, "<= 0.6");
    for (int n = 1; n <= 4096; n *= 8) {
        char work[64];
        snprintf(work, sizeof work, "append_kv_batch, n = %d, per record", n);
        against_plain(work, batch_sample, n, n < 8 ? "" : n < 64 ? "<= 16 ns" : "<= 16 ns, < 1 x");
    }
    against_plain("append_kv_run, n = 64, per record", run_sample, 64, "<= 3 ns");
    against_plain("create + free 256 blocks, pool 1,024, empty", create_sample, 1024, "<= 0.4");
    against_plain("the same, pool 65,536, 99 % full", create_sample, 65536, "<= 0.01");
    against_plain("the same, pool 1,048,576, 99 % full", create_sample, 1 << 20, "<= 0.01");
    static const char *const branch[] = {"fork of 16 blocks", "append with copy-on-write", "free of 16 blocks"};
    for (int i = 0; i < 3; i++) {
        against_plain(branch[i], branch_sample, i, "<= 3.2");
    }

    struct stat st;
    must(stat(argv[1], &st) == 0, "stat");
    printf("%-48s %20.3f   %27s 0\n", "Go heap allocations per call", allocations_per_call(20000), "");
    printf("%-48s %18.2f MB   %26s < 2 MB\n", "library file", (double)st.st_size / 1e6, "");
    printf("%-48s %18.2f MB   %26s < 8 MB\n", "memory at rest, over the host's", (double)rest / 1e3, "");
    LLMEngine *e = ours.init(pool, (size_t)1024 * BLOCK_SIZE);
    for (int i = 0; i < 1000; i++) {
        ours.create(e, i, 1);
        ours.release(e, i);
    }
    long start = resident_kib();
    for (int i = 0; i < 1000000; i++) {
        ours.create(e, i, 20);
        ours.release(e, i);
    }
    printf("%-48s %18.2f MB   %26s 0\n", "growth over a million create + free",
        (double)(resident_kib() - start) / 1e3, "");
    ours.destroy(e);
    return 0;
}

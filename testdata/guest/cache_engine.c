/*
 * cache_engine [STEPS [SEED]] - plays engines over real block memory and checks every read.
 * cache_engine run SEED [STEP] - plays the run of one seed, and shows it from a step on.
 * cache_engine seeds FROM TO - plays the runs of some seeds.
 *
 * Each run opens a cache with groups, flags and sizes that follow from its seed, and plays an
 * engine as llm_cache.h describes it. There is no model: for each token the worker writes a hash of
 * all tokens up to it, into the slot that the library names, and a state of a Mamba group is the hash
 * of the tokens before it. Each row reads through its block tables what its kind of attention reads,
 * and must find what a request that runs alone would have there. The sampled token
 * follows from the hash, so that each output is known as well. What is given back or handed out
 * is overwritten with garbage, and what is computed from garbage is garbage.
 *
 * Requests share prefixes, are aborted, forked, held, preempted and loaded from elsewhere; drafts are accepted and
 * rejected; rows sample nothing, steps fail halfway, loads fail. At the end of a run all requests end
 * within a bounded number of steps, and no block is missing.
 */
#include <stdarg.h>
#include <stdbool.h>

#include "cache_check.h"

enum {
    MAX_LEN = 96,
    SPARE = 32,                     /* tokens and blocks beyond: drafts, lookahead */
    TOKENS = MAX_LEN + SPARE,       /* of a request */
    ENTRIES = TOKENS,               /* of a table */
    MAX_GROUPS = 4,
    MAX_PAGE = 16,                  /* numbers in a block */
    MAX_BLOCKS = 2048,
    MAX_DRAFTS = 4,
    MAX_ROWS = 8,
    REQUESTS = 32,                  /* known at a time */
    QUEUE = 64,                     /* steps, a power of two */
    VOCABULARY = 50,
    STREAMS = 4,
    RUN_STEPS = 400,
    PATIENCE = 30000                /* ticks until all requests of a run have ended */
};

/* ---- Random numbers and content ---- */

static uint64_t random_state;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t bits(void) { return mix(random_state += 0x9e3779b97f4a7c15u); }
static int draw(int below) { return (int)(bits() >> 33) % below; }
static int between(int low, int high) { return low + draw(high - low + 1); }
static bool chance(int percent) { return percent > 0 && draw(100) < percent; }

#define PICK(...) ((const int[]){__VA_ARGS__}[draw((int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))])

/* Tokens, and the hashes of their prefixes as far as they are known. */
struct text {
    uint64_t root; /* hash of no tokens: weights, salt and adapter */
    int n, hashed;
    int32_t at[TOKENS];
    uint64_t hash[TOKENS + 1]; /* hash[i] of the first i tokens */
};

static uint64_t hash_of(struct text *t, int tokens) {
    if (t->hashed < 0) {
        t->hash[0] = t->root;
        t->hashed = 0;
    }
    for (; t->hashed < tokens; t->hashed++) {
        uint64_t last = (uint64_t)(uint32_t)t->at[t->hashed] * 0x9e3779b97f4a7c15u;
        t->hash[t->hashed + 1] = mix(t->hash[t->hashed] + last + 1);
    }
    return t->hash[tokens];
}

static void cut(struct text *t, int n) {
    t->n = n;
    t->hashed = t->hashed < n ? t->hashed : n;
}

static void put_token(struct text *t, int at, int32_t token) {
    if (at >= t->n || t->at[at] != token) {
        t->hashed = t->hashed < at ? t->hashed : at;
        t->at[at] = token;
    }
    t->n = t->n > at ? t->n : at + 1;
}

/* What a request that runs alone samples after its first n tokens. */
static int32_t sampled_after(struct text *t, int n) { return (int32_t)((hash_of(t, n) >> 20) % VOCABULARY); }

/* ---- The state of a run ---- */

enum { POISON = -1, ZERO = -2, LOST = -3, COMPUTED_WRONG = -4 }; /* in place of the number of a request */

struct word {
    uint64_t value;
    int32_t request, position; /* for messages: who wrote it */
};

struct request {
    bool used;
    llm_request id;
    int number;
    uint32_t flags;
    /* The host's. */
    struct text host;
    int prompt, max_tokens, min_tokens;
    int32_t stop[2];
    int n_stop;
    bool ended, held, asking, asked; /* asking: not answered; asked: a step's queries named it */
    bool loading, begun, early;      /* keys and values from elsewhere while it waits; early: they come at once */
    bool forked;                     /* no step with a row of it was executed */
    bool received;                   /* has blocks, by a load or a fork, and has not run since */
    bool sending, ran_on;            /* has finished, and its blocks are kept; ran_on: with steps in flight */
    int ended_after;                 /* the last step that was scheduled when it ended */
    int preempted_in;                /* the last step that said so */
    int load_from, load_to;
    int32_t load_table[MAX_GROUPS][ENTRIES];
    int load_len[MAX_GROUPS];
    int rows; /* in steps in flight */
    /* The worker's. */
    bool dropped; /* a step has reported that it finished */
    struct text worker;
    int32_t table[MAX_GROUPS][ENTRIES];
    int len[MAX_GROUPS];
};

struct row {
    struct request *r;
    int known;              /* tokens of the host when it was scheduled */
    struct row *before[8];  /* rows of the same request in flight then */
    int n_before;
    int computed;           /* without the drafts that were not accepted */
    bool computed_wrong;    /* it read what is not there, or had no input */
    bool excused;           /* ... because something failed, of which the library knows or will */
    bool ignored;           /* the library knows that its tokens do not count */
    bool silent;            /* nothing was sampled though the row samples */
    int count;
    int32_t sampled[MAX_DRAFTS + 1];
    int rejected;           /* drafts */
    char wrong[400];        /* the first wrong read */
};

struct flight {
    int number;
    bool executed;
    llm_cache_step step;
    struct row rows[MAX_ROWS];
    int32_t lost[256]; /* blocks that rows with `external` did not get */
    int n_lost;
};

/* How often things happen, in percent. */
struct rates {
    int add, abort, fork, silent, fail, lose, hold, pause, reset, drafts, match;
    int eager; /* executes before it must */
};

static struct {
    uint64_t seed;
    int number; /* of steps scheduled so far, with those without rows */
    int steps;  /* with rows */
    llm_cache cache;
    llm_cache_config config;
    llm_cache_group groups[MAX_GROUPS];
    int n_groups, page, depth;
    bool drafting, mamba, narrow, async, consumer, producer;
    struct rates rates;
    struct word memory[MAX_BLOCKS][MAX_PAGE];
    int refs[MAX_BLOCKS]; /* entries of the worker's tables */
    struct request requests[REQUESTS];
    int added;
    const struct request *newest;
    int head, next, tail; /* of the queue: oldest step, next to execute, end */
    int in_flight;        /* steps with rows in the queue */
    int paused;
    bool quiet, ending; /* quiet: no call that changes something since the last schedule */
    uint64_t weights;
    int32_t streams[STREAMS][MAX_LEN];
    bool lossy; /* something in flight failed, so wrong reads are judged when the step is updated */
} run;

static struct flight queue[QUEUE];
static llm_cache_events events = {.size = sizeof events};

static struct {
    int64_t steps, runs, reads, tokens, preempted, resumed, copies, hits, forks, aborts, fails, silent, loads, lost,
        drafts, accepted, zeroed,
        tails, sent, resets, refused, affected, finished;
} total;

static int64_t show_from = -1;

/* ---- Messages ---- */

static void show(const char *format, ...) {
    if (show_from < 0 || run.number < show_from) {
        return;
    }
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static const char *kind_of(int g) {
    static char text[100];
    const llm_cache_group *s = &run.groups[g];
    switch (s->kind) {
    case LLM_CACHE_FULL: snprintf(text, sizeof text, "full, blocks of %d", s->block_size); break;
    case LLM_CACHE_SLIDING_WINDOW: snprintf(text, sizeof text, "window %d+%d, blocks of %d", s->window, s->retained,
        s->block_size); break;
    case LLM_CACHE_CHUNKED_LOCAL: snprintf(text, sizeof text, "chunks of %d, blocks of %d", s->chunk,
        s->block_size); break;
    default: snprintf(text, sizeof text, "Mamba, blocks of %d and %d for drafts", s->block_size,
        s->num_speculative_blocks); break;
    }
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s%s", s->flags & LLM_CACHE_GROUP_ALIGN ? ", aligned" : "",
        s->flags & LLM_CACHE_GROUP_EAGLE ? ", EAGLE" : "");
    return text;
}

static void print_setup(FILE *out) {
    static const char *const names[] = {"events", "whole prefills", "admit chunks", "return drafts", "", "EAGLE", "",
        "async", "consumer", "producer",
                                        "best effort", "", "zero blocks"};
    const llm_cache_config *c = &run.config;
    fprintf(out, "  cache: %d blocks, %d sequences, %d tokens a step, %d a request, %d a prefill, hash %d, policy %d, "
        "%d steps in flight", c->num_gpu_blocks,
            c->max_num_seqs, c->max_num_batched_tokens, c->max_model_len, c->long_prefill_token_threshold, c->hash,
                c->policy, run.depth);
    fprintf(out, ", drafts %d, lookahead %d, scheduler block %d, retention %d, stages %d, "
        "watermark %g, in flight tokens %d",
            c->num_speculative_tokens, c->num_lookahead_tokens, c->scheduler_block_size, c->retention_interval,
                c->pipeline_parallel_size, c->watermark,
            c->max_in_flight_tokens);
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (c->flags >> i & 1) {
            fprintf(out, ", %s", names[i]);
        }
    }
    fprintf(out, "\n");
    for (int g = 0; g < run.n_groups; g++) {
        fprintf(out, "  group %d: %s\n", g, kind_of(g));
    }
}

static _Noreturn void fail(int step, const char *format, ...) {
    fflush(stdout);
    va_list args;
    va_start(args, format);
    fprintf(stderr, "seed %llu, step %d: ", (unsigned long long)run.seed, step);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    print_setup(stderr);
    fprintf(stderr, "  repeat: cache_engine run %llu %d\n", (unsigned long long)run.seed, step > 5 ? step - 5 : 0);
    exit(1);
}

/* A call that must succeed. */
static void must(int error, const char *call) {
    if (error) {
        fail(run.number, "%s is %d: %s; %s", call, error, llm_cache_error_text(error), llm_cache_error_detail());
    }
}

#define MUST(call) must(call, #call)

/* ---- The memory and the worker's tables ---- */

static uint64_t value_of(int group, uint64_t hash) { return hash ^ mix((uint64_t)group + 77); }

static void write_word(int32_t block, int offset, uint64_t value, int request, int position) {
    run.memory[block][offset] = (struct word){value, request, position};
}

static void fill(int32_t block, int why) {
    for (int i = 0; i < run.page; i++) {
        write_word(block, i, why == ZERO ? 0 : bits(), why, run.number);
    }
}

static const char *found(const struct word *w) {
    static char text[100];
    switch (w->request) {
    case POISON: snprintf(text, sizeof text, "garbage of step %d, when the block was handed out or given back",
        w->position); break;
    case ZERO: snprintf(text, sizeof text, "zeros of step %d", w->position); break;
    case LOST: snprintf(text, sizeof text, "what a load of step %d did not bring", w->position); break;
    case COMPUTED_WRONG: snprintf(text, sizeof text, "what a row of step %d computed from garbage", w->position); break;
    default: snprintf(text, sizeof text, "what request %d wrote for its position %d", w->request, w->position); break;
    }
    return text;
}

static void set_entry(struct request *r, int g, int i, int32_t block) {
    run.refs[r->table[g][i]]--;
    run.refs[block]++;
    r->table[g][i] = block;
}

static void set_length(struct request *r, int g, int n) {
    for (int i = n; i < r->len[g]; i++) {
        set_entry(r, g, i, 0);
    }
    r->len[g] = n;
}

static struct request *find(llm_request id) {
    for (int i = 0; i < REQUESTS; i++) {
        if (run.requests[i].used && run.requests[i].id == id) {
            return &run.requests[i];
        }
    }
    return NULL;
}

static bool live(const struct request *r) { return r->used && !r->ended; }

static void drop_table(struct request *r) {
    for (int g = 0; g < run.n_groups; g++) {
        set_length(r, g, 0);
    }
}

/* The slot of a request that the host, the worker and the library have done with can be used again. */
static void forget(struct request *r) {
    if (r->used && r->ended && r->dropped && !r->sending && !r->loading && r->rows == 0) {
        drop_table(r);
        r->used = false;
    }
}

static struct flight *flight(int i) { return &queue[i & (QUEUE - 1)]; }

/* ---- What a row reads ---- */

/* The first position that a query at position p, or a load up to p, needs in a group of attention. */
static int first_read(const llm_cache_group *s, int p) {
    int from = 0;
    if (s->kind == LLM_CACHE_SLIDING_WINDOW) {
        from = p - s->window + 1;
    } else if (s->kind == LLM_CACHE_CHUNKED_LOCAL) {
        from = p / s->chunk * s->chunk;
    }
    return from > 0 ? from : 0;
}

/* Compares positions from..to-1 with the text, and says in wrong what differs first. */
static bool reads(int g, const int32_t *table, int len, struct text *t, int from, int to, char *wrong, size_t room) {
    int size = run.groups[g].block_size;
    hash_of(t, to);
    total.reads += to - from;
    for (int p = from; p < to; p++) {
        int32_t block = p / size < len ? table[p / size] : 0;
        const struct word *w = &run.memory[block][p % size];
        if (block == 0 || w->value != value_of(g, t->hash[p + 1])) {
            snprintf(wrong, room, "group %d (%s), position %d, entry %d of the table, block %d: found %s, "
                "expected the hash of its own first %d tokens", g,
                     kind_of(g), p, p / size, block, block == 0 ? "the null block" : found(w), p + 1);
            return false;
        }
    }
    return true;
}

/* The same for the state after `tokens` tokens in a block. */
static bool reads_state(int g, int32_t block, struct text *t, int tokens, char *wrong, size_t room) {
    uint64_t value = value_of(g, hash_of(t, tokens));
    total.reads++;
    for (int i = 0; i < run.page; i++) {
        const struct word *w = &run.memory[block][i];
        if (block == 0 || w->value != value + (uint64_t)i) {
            snprintf(wrong, room, "group %d (%s), block %d: found %s, expected the state after its own first %d tokens",
                g, kind_of(g), block,
                     block == 0 ? "the null block" : found(w), tokens);
            return false;
        }
    }
    return true;
}

static void write_state(int g, int32_t block, struct text *t, int tokens, int number) {
    uint64_t value = value_of(g, hash_of(t, tokens));
    for (int i = 0; i < run.page; i++) {
        write_word(block, i, value + (uint64_t)i, number, tokens);
    }
}

/*
 * What a request needs to go on after `computed` tokens is in the blocks of its tables. Not last: its rows went
 * further, so states and the lower ends of windows may have gone on, too.
 */
static bool has_prefix(int32_t (*table)[ENTRIES], const int *len, struct text *t, int computed, bool last, char *wrong,
    size_t room) {
    for (int g = 0; g < run.n_groups && computed > 0; g++) {
        const llm_cache_group *s = &run.groups[g];
        if (s->kind == LLM_CACHE_MAMBA) {
            int entry = (computed - 1) / s->block_size;
            if (last && !reads_state(g, entry < len[g] ? table[g][entry] : 0, t, computed, wrong, room)) {
                return false;
            }
        } else if ((last || s->kind == LLM_CACHE_FULL) && !reads(g, table[g], len[g], t, first_read(s, computed),
            computed, wrong, room)) {
            return false;
        }
    }
    return true;
}

/* ---- Loads ---- */

/* Writes tokens from..to-1 of a request into the blocks of a table, but for the lost blocks. */
static void load_into(struct request *r, int32_t (*table)[ENTRIES], const int *len, struct text *t, int from, int to,
    const int32_t *lost, int n_lost) {
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        for (int entry = from / size; entry <= (to - 1) / size && entry < len[g]; entry++) {
            int32_t block = table[g][entry];
            int low = entry * size > from ? entry * size : from, high = (entry + 1) * size < to ? (entry + 1) * size
                : to;
            bool failed = false;
            for (int i = 0; i < n_lost; i++) {
                failed = failed || lost[i] == block;
            }
            if (block == 0) {
                continue;
            }
            if (run.groups[g].kind == LLM_CACHE_MAMBA) {
                failed ? fill(block, LOST) : write_state(g, block, t, high, r->number);
                continue;
            }
            for (int p = low; p < high; p++) {
                if (failed) {
                    write_word(block, p % size, bits(), LOST, run.number);
                } else {
                    write_word(block, p % size, value_of(g, hash_of(t, p + 1)), r->number, p);
                }
            }
        }
    }
}

/* Chooses blocks of a table that do not get their contents. */
static int choose_lost(int32_t (*table)[ENTRIES], const int *len, int from, int to, int32_t *lost, int room) {
    int n = 0, percent = PICK(100, 50, 20, 0);
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        for (int entry = from / size; entry <= (to - 1) / size && entry < len[g]; entry++) {
            if (table[g][entry] != 0 && n < room && chance(percent)) {
                lost[n++] = table[g][entry];
            }
        }
    }
    return n;
}

/* A load that a step began goes on beside the steps. */
static void begin_load(struct request *r) {
    if (!r->loading || r->begun) {
        return;
    }
    r->begun = true;
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        for (int entry = (r->load_from + size - 1) / size; entry < r->load_len[g]; entry++) {
            if (r->load_table[g][entry] != 0) {
                fill(r->load_table[g][entry], POISON);
            }
        }
    }
    if (r->early) {
        load_into(r, r->load_table, r->load_len, &r->host, r->load_from, r->load_to, NULL, 0);
    }
}

/* The rows in flight of a request that sampled nothing count no more, until it starts anew. */
static void ignore_rows(const struct request *r) {
    for (int q = run.head; q < run.tail; q++) {
        for (int64_t k = 0; k < flight(q)->step.rows.len; k++) {
            struct row *row = &flight(q)->rows[k];
            if (row->r == r && flight(q)->step.rows.at[k].kind != LLM_CACHE_ROW_RUNNING) {
                return;
            }
            if (row->r == r) {
                row->ignored = row->excused = true;
            }
        }
    }
}

/* Tells the library which blocks were lost, and hears which rows are void. */
static void load_failed(const int32_t *blocks, int n) {
    llm_request ids[REQUESTS];
    llm_cache_void_row rows[64];
    llm_cache_load_failure failure = {
        .size = sizeof failure, .affected = {.at = ids, .cap = REQUESTS}, .void_rows = {.at = rows, .cap = 64},
    };
    MUST(llm_cache_load_failed(run.cache, blocks, n, &failure));
    run.quiet = false;
    total.lost += n;
    total.affected += failure.affected.len;
    for (int64_t i = 0; i < failure.affected.len; i++) {
        struct request *r = find(failure.affected.at[i]);
        if (r == NULL || r->ended) {
            fail(run.number, "llm_cache_load_failed names request %llx, which has ended",
                (unsigned long long)failure.affected.at[i]);
        }
        show("  affected: request %d", r->number);
    }
    for (int64_t i = 0; i < failure.void_rows.len; i++) {
        int q = run.head;
        for (int step = 0; q < run.tail; q++) { /* those without rows are not in flight */
            if (flight(q)->step.rows.len > 0 && step++ == rows[i].step) {
                break;
            }
        }
        if (q == run.tail || rows[i].row < 0 || rows[i].row >= flight(q)->step.rows.len) {
            fail(run.number, "a void row that is not in flight: step %d, row %d", rows[i].step, rows[i].row);
        }
        struct row *w = &flight(q)->rows[rows[i].row];
        show("  void: request %d in step %d", w->r->number, flight(q)->number);
        w->ignored = w->excused = true;
    }
}

/* A request has ended; further: its rows computed more than counts. */
static void end_request(struct request *r, bool aborted, bool further) {
    r->ended = true;
    r->ended_after = run.number;
    r->held = r->asking = false;
    int64_t computed, tokens;
    if (r->flags & LLM_CACHE_SEND && !r->loading) {
        int error = llm_cache_progress(run.cache, r->id, &computed, &tokens);
        if (error && (error != LLM_CACHE_E_REQUEST || !(aborted || run.config.flags & LLM_CACHE_KV_BEST_EFFORT))) {
            fail(run.number, "request %d has LLM_CACHE_SEND and has finished, and llm_cache_progress is %d", r->number,
                error);
        }
        r->sending = error == 0;
        r->ran_on = r->rows > 0 || further;
    }
}

static void finish_load(struct request *r) {
    int32_t lost[256];
    int n = chance(run.rates.lose) ? choose_lost(r->load_table, r->load_len, r->load_from, r->load_to, lost, 256) : 0;
    if (n > 0 || !r->early) {
        load_into(r, r->load_table, r->load_len, &r->host, r->load_from, r->load_to, lost, n);
    }
    show("received: request %d, %d blocks lost%s", r->number, n, r->ended ? ", aborted" : "");
    if (n > 0) {
        load_failed(lost, n);
    }
    MUST(llm_cache_received(run.cache, &r->id, 1));
    run.quiet = false;
    r->loading = r->begun = false;
    r->received = true;
    if (r->ended) {
        end_request(r, true, false);
    }
    forget(r);
}

/* ---- Scheduling ---- */

static void *grow(void *at, int64_t *cap, int64_t len, size_t size) {
    if (*cap < len) {
        *cap = 2 * len;
        at = realloc(at, (size_t)*cap * size);
        CHECK(at != NULL);
    }
    return at;
}

#define GROW(a) ((a).at = grow((a).at, &(a).cap, (a).len, sizeof *(a).at))

static void grow_step(llm_cache_step *s) {
    GROW(s->rows), GROW(s->drafts), GROW(s->blocks), GROW(s->block_starts), GROW(s->block_ends), GROW(s->slots);
    GROW(s->copies), GROW(s->common), GROW(s->preempted), GROW(s->finished), GROW(s->loads), GROW(s->queries);
    GROW(s->encoder_inputs), GROW(s->freed_encoder_outputs), GROW(s->zero), GROW(s->tails);
}

static void show_step(const struct flight *f) {
    if (show_from < 0 || run.number < show_from) {
        return;
    }
    const llm_cache_step *s = &f->step;
    printf("step %d:", f->number);
    for (int64_t i = 0; i < s->preempted.len; i++) {
        struct request *r = find(s->preempted.at[i]);
        printf(" preempted %d;", r ? r->number : -1);
    }
    for (int64_t i = 0; i < s->finished.len; i++) {
        struct request *r = find(s->finished.at[i]);
        printf(" finished %d;", r ? r->number : -1);
    }
    for (int64_t i = 0; i < s->zero.len; i++) {
        printf("%s%d", i ? " " : " zero ", s->zero.at[i]);
    }
    for (int64_t i = 0; i < s->copies.len; i++) {
        const llm_cache_copy *c = &s->copies.at[i];
        struct request *r = find(c->id);
        printf("\n  copy %d to %d, group %d, index %d, request %d", c->src, c->dst, c->group, c->index, r ? r->number
            : -1);
    }
    for (int64_t i = 0; i < s->loads.len; i++) {
        struct request *r = find(s->loads.at[i].id);
        printf("\n  load request %d: tokens %d to %d", r->number, s->loads.at[i].computed,
            s->loads.at[i].computed + s->loads.at[i].external - 1);
        for (int g = 0; g < run.n_groups; g++) {
            printf(" [%d:", g);
            for (int k = 0; k < r->load_len[g]; k++) {
                printf(" %d", r->load_table[g][k]);
            }
            printf("]");
        }
    }
    int64_t block = 0;
    for (int64_t i = 0; i < s->rows.len; i++) {
        const llm_cache_row *row = &s->rows.at[i];
        static const char *const kinds[] = {"running", "new", "resumed"};
        printf("\n  request %d (%s): computed %d, tokens %d, drafts %d, samples %d, external %d;",
            f->rows[i].r->number, kinds[row->kind], row->computed,
               row->tokens, row->drafts, row->samples, row->external);
        for (int g = 0; g < run.n_groups; g++) {
            int64_t part = i * run.n_groups + g;
            printf(" [%d from %lld:", g, (long long)s->block_starts.at[part]);
            for (; block < s->block_ends.at[part]; block++) {
                printf(" %d", s->blocks.at[block]);
            }
            printf("]");
        }
    }
    printf("\n");
}

/* A step without rows, while nothing is in flight, must have a reason. */
static void check_stopped(void) {
    int able = 0, holding = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const struct request *r = &run.requests[i];
        holding += r->used && (r->loading || r->sending);
        able += live(r) && !r->held && !r->asking && !r->loading;
    }
    if (able > 0 && holding == 0 && run.paused == LLM_CACHE_PAUSE_NONE) {
        fail(run.number, "nothing runs, though %d requests could, nothing is in flight, loaded, sent or paused", able);
    }
}

static void schedule(void) {
    struct flight *f = flight(run.tail);
    llm_cache_step *s = &f->step;
    s->size = sizeof *s;
    f->number = ++run.number;
    f->executed = false;
    f->n_lost = 0;
    int64_t rows = s->rows.cap, slots = s->slots.cap;
    if (draw(100) == 0) { /* arrays that are too small: the step must be kept */
        s->rows.cap = s->slots.cap = 0;
    }
    int error = llm_cache_schedule(run.cache, s);
    s->rows.cap = rows, s->slots.cap = slots;
    while (error == LLM_CACHE_E_SMALL) {
        grow_step(s);
        error = llm_cache_schedule(run.cache, s);
    }
    must(error, "llm_cache_schedule");
    run.quiet = true;
    CHECK(s->rows.len <= MAX_ROWS);
    int64_t tokens = 0;
    for (int64_t i = 0; i < s->rows.len; i++) {
        const llm_cache_row *row = &s->rows.at[i];
        struct row *w = &f->rows[i];
        struct request *r = find(row->id);
        if (r == NULL || r->ended || r->held || r->loading || r->asking) {
            fail(f->number, "row %lld is of a request that %s", (long long)i, r == NULL ? "is not known" : r->ended
                ? "has ended" : "is held, loading or asking");
        }
        if (row->tokens < 1 || row->drafts < 0 || row->drafts > MAX_DRAFTS || row->drafts >= row->tokens ||
            row->computed < 0 ||
            row->external < 0 || row->external > row->computed) {
            fail(f->number, "request %d: a row with %d computed, %d tokens, %d drafts, %d external", r->number,
                row->computed, row->tokens, row->drafts, row->external);
        }
        *w = (struct row){.r = r, .known = r->host.n};
        for (int q = run.head; q < run.tail && row->kind == LLM_CACHE_ROW_RUNNING; q++) {
            for (int64_t k = 0; k < flight(q)->step.rows.len; k++) {
                struct row *before = &flight(q)->rows[k];
                if (before->r == r && !before->ignored) {
                    if (flight(q)->step.rows.at[k].kind != LLM_CACHE_ROW_RUNNING) {
                        w->n_before = 0; /* it started anew there */
                    }
                    CHECK(w->n_before < 8);
                    w->before[w->n_before++] = before;
                }
            }
        }
        r->rows++;
        r->received = false;
        tokens += row->tokens;
        total.resumed += row->kind == LLM_CACHE_ROW_RESUMED;
    }
    if (tokens != s->tokens || s->tokens > run.config.max_num_batched_tokens || s->rows.len > run.config.max_num_seqs ||
        s->slots.len != tokens * run.n_groups) {
        fail(f->number, "%lld tokens in rows, %d in the step, %lld slots", (long long)tokens, s->tokens,
            (long long)s->slots.len);
    }
    for (int64_t i = 0; i < s->preempted.len; i++) {
        struct request *r = find(s->preempted.at[i]);
        if (r != NULL) {
            r->preempted_in = f->number;
        }
    }
    for (int64_t i = 0; i < s->finished.len; i++) {
        struct request *r = find(s->finished.at[i]);
        if (r != NULL && !r->ended) {
            fail(f->number, "request %d is in finished and has not finished", r->number);
        }
    }
    for (int64_t i = 0; i < s->loads.len; i++) {
        const llm_cache_load *load = &s->loads.at[i];
        struct request *r = find(load->id);
        if (r == NULL || r->ended || r->loading || load->external < 1 ||
            load->computed + load->external > r->prompt + run.config.max_model_len) {
            fail(f->number, "a load of a request that cannot be loaded");
        }
        r->loading = true, r->begun = false, r->early = chance(50);
        r->load_from = load->computed, r->load_to = load->computed + load->external;
        for (int g = 0; g < run.n_groups; g++) {
            llm_cache_i32s table = {.at = r->load_table[g], .cap = ENTRIES};
            MUST(llm_cache_table(run.cache, r->id, g, &table));
            r->load_len[g] = (int)table.len;
        }
        total.loads++;
    }
    for (int64_t i = 0; i < s->queries.len; i++) {
        struct request *r = find(s->queries.at[i].id);
        if (r == NULL || r->ended || !(r->flags & LLM_CACHE_ASK)) {
            fail(f->number, "a query for request %d, which does not ask", r == NULL ? -1 : r->number);
        }
        r->asking = r->asked = true; /* again, if it has lost its blocks */
    }
    show_step(f);
    run.tail++;
    CHECK(run.tail - run.head < QUEUE - 8);
    if (s->rows.len > 0) {
        run.in_flight++;
        run.steps++;
        total.steps++;
        total.tokens += tokens;
    } else if (run.in_flight == 0) {
        check_stopped();
    }
}

/* ---- The worker ---- */

/* The entries of a row's part for a group. */
static const int32_t *part(const llm_cache_step *s, int64_t row, int g, int *start, int *n) {
    int64_t i = row * run.n_groups + g, from = i > 0 ? s->block_ends.at[i - 1] : 0;
    *start = (int)s->block_starts.at[i];
    *n = (int)(s->block_ends.at[i] - from);
    return s->blocks.at + from;
}

/* Overwrites blocks that are new and belong to nobody: all that is in them is what the row will write. */
static void poison_new(struct flight *f) {
    const llm_cache_step *s = &f->step;
    for (int64_t i = 0; i < s->rows.len; i++) {
        int computed = f->rows[i].computed;
        for (int g = 0; g < run.n_groups; g++) {
            int start, n, size = run.groups[g].block_size;
            const int32_t *blocks = part(s, i, g, &start, &n);
            for (int k = 0; k < n; k++) {
                bool copied = false;
                for (int64_t c = 0; c < s->copies.len; c++) {
                    copied = copied || s->copies.at[c].src == blocks[k] || s->copies.at[c].dst == blocks[k];
                }
                if (blocks[k] != 0 && run.refs[blocks[k]] == 0 && (start + k) * size >= computed && !copied) {
                    fill(blocks[k], POISON);
                }
            }
        }
    }
}

/* The tables as the worker has them after the step. */
static void change_tables(struct flight *f) {
    const llm_cache_step *s = &f->step;
    for (int64_t i = 0; i < s->rows.len; i++) {
        struct request *r = f->rows[i].r;
        for (int g = 0; g < run.n_groups; g++) {
            int start, n;
            const int32_t *blocks = part(s, i, g, &start, &n);
            if (start < 0 || start > r->len[g] || (start > 0 && s->rows.at[i].kind != LLM_CACHE_ROW_RUNNING) ||
                start + n > ENTRIES) {
                fail(f->number, "request %d, group %d: %d blocks go to entry %d of a table that has %d entries",
                    r->number, g, n, start, r->len[g]);
            }
            set_length(r, g, start);
            for (int k = 0; k < n; k++) {
                if (blocks[k] < 0 || blocks[k] >= run.config.num_gpu_blocks) {
                    fail(f->number, "request %d, group %d: there is no block %d", r->number, g, blocks[k]);
                }
                r->len[g] = start + k + 1;
                set_entry(r, g, start + k, blocks[k]);
            }
        }
    }
}

/*
 * Where a row begins, its tokens, and what it samples. The worker's text then has the drafts of the row at its end,
 * until settle.
 */
static void take_input(struct flight *f, int64_t i, const int32_t *drafts) {
    const llm_cache_row *row = &f->step.rows.at[i];
    struct row *w = &f->rows[i];
    struct request *r = w->r;
    struct text *t = &r->worker;
    w->computed = row->computed;
    for (int k = 0; k < w->n_before; k++) {
        const struct row *before = w->before[k];
        w->computed -= before->rejected;
        if (before->ignored || before->silent || before->computed_wrong) {
            w->computed_wrong = w->excused = true; /* there is no input */
            snprintf(w->wrong, sizeof w->wrong, "its previous row sampled nothing that counts");
        }
    }
    int end = w->computed + row->tokens - row->drafts;
    if (w->n_before == 0) {
        t->root = r->host.root;
        t->hashed = -1;
        for (int p = 0; p < w->known; p++) {
            put_token(t, p, r->host.at[p]);
        }
        if (row->kind != LLM_CACHE_ROW_RESUMED || end <= w->known) {
            cut(t, w->known);
        }
    }
    if (w->computed_wrong || r->ended) {
        while (t->n < end) {
            put_token(t, t->n, draw(VOCABULARY));
        }
    } else if (w->computed < 0 || end > t->n || row->samples != (end == t->n)) {
        fail(f->number, "request %d: a row from position %d to %d, of %d tokens that there are, with samples %d",
            r->number, w->computed, end, t->n, row->samples);
    }
    if (row->drafts > 0 && !row->samples) {
        fail(f->number, "request %d has drafts and does not sample", r->number);
    }
    if (!row->samples) {
        return;
    }
    cut(t, end);
    bool right = true;
    for (int k = 0;; k++) {
        int32_t next = sampled_after(t, end + k);
        if (right) {
            w->sampled[w->count++] = next;
        }
        if (k == row->drafts) {
            break;
        }
        int32_t draft = drafts[k];
        if (draft < 0 && run.async) {
            draft = chance(70) ? next : draw(VOCABULARY);
        }
        right = right && draft == next;
        put_token(t, end + k, draft);
    }
    w->rejected = row->drafts - (w->count - 1);
    w->silent = !w->computed_wrong && chance(run.rates.silent);
}

/* What a row computes from garbage is garbage. */
static void spoil(struct flight *f, int64_t i) {
    const llm_cache_row *row = &f->step.rows.at[i];
    struct row *w = &f->rows[i];
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        bool state = run.groups[g].kind == LLM_CACHE_MAMBA;
        for (int p = w->computed < 0 ? 0 : w->computed; p < w->computed + row->tokens; p++) {
            int32_t block = p / size < w->r->len[g] ? w->r->table[g][p / size] : 0;
            if (block != 0 && !state) {
                write_word(block, p % size, bits(), COMPUTED_WRONG, f->number);
            } else if (block != 0 && p == w->computed + row->tokens - 1) {
                fill(block, COMPUTED_WRONG);
            }
        }
    }
}

static void write_row(struct flight *f, int64_t i, int64_t first_slot) {
    const llm_cache_row *row = &f->step.rows.at[i];
    struct row *w = &f->rows[i];
    struct request *r = w->r;
    hash_of(&r->worker, w->computed + row->tokens);
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        for (int k = 0; k < row->tokens && run.groups[g].kind != LLM_CACHE_MAMBA; k++) {
            int p = w->computed + k;
            int32_t block = p / size < r->len[g] ? r->table[g][p / size] : 0;
            int64_t slot = block == 0 ? -1 : (int64_t)block * size + p % size;
            if (w->computed == row->computed) { /* otherwise the library could not know */
                int64_t given = f->step.slots.at[(int64_t)g * f->step.tokens + first_slot + k];
                if (given != slot && given >= 0) {
                    fail(f->number, "request %d, group %d (%s), position %d: the slot is %lld, by the table %lld",
                        r->number, g, kind_of(g), p,
                         (long long)given, (long long)slot);
                }
                slot = given;
            }
            if (slot >= 0) {
                write_word((int32_t)(slot / size), (int)(slot % size), value_of(g, r->worker.hash[p + 1]), r->number,
                    p);
            }
        }
    }
}

/* Whether a row reads what it should in the groups of attention, once all rows are written. */
static bool read_row(struct flight *f, int64_t i) {
    struct row *w = &f->rows[i];
    int end = w->computed + f->step.rows.at[i].tokens;
    for (int g = 0; g < run.n_groups; g++) {
        const llm_cache_group *s = &run.groups[g];
        if (s->kind != LLM_CACHE_MAMBA &&
            !reads(g, w->r->table[g], w->r->len[g], &w->r->worker, first_read(s, w->computed), end, w->wrong,
                sizeof w->wrong)) {
            return false;
        }
    }
    return true;
}

/* Reads and writes the states of a row. Of drafts, those that were not accepted do not count. */
static bool run_states(struct flight *f, int64_t i) {
    const llm_cache_row *row = &f->step.rows.at[i];
    struct row *w = &f->rows[i];
    struct request *r = w->r;
    int end = w->computed + row->tokens - w->rejected;
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        if (run.groups[g].kind != LLM_CACHE_MAMBA) {
            continue;
        }
        int entry = (w->computed - 1) / size;
        if (w->computed > 0 &&
            !reads_state(g, entry < r->len[g] ? r->table[g][entry] : 0, &r->worker, w->computed, w->wrong,
                sizeof w->wrong)) {
            return false;
        }
        for (int p = row->drafts > 0 ? w->computed + row->tokens - row->drafts : end; p <= end; p++) {
            int32_t block = (p - 1) / size < r->len[g] ? r->table[g][(p - 1) / size] : 0;
            if (block != 0 && (p == end || p % size == 0)) {
                write_state(g, block, &r->worker, p, r->number);
            } else if (p == end) {
                fail(f->number, "request %d, group %d (%s): there is no block for the state after %d tokens",
                    r->number, g, kind_of(g), end);
            }
        }
    }
    return true;
}

/* A row that has read what is not there: an error, unless something failed or nobody looks at its request any more. */
static void judge(struct flight *f, int64_t i) {
    struct row *w = &f->rows[i];
    const llm_cache_row *row = &f->step.rows.at[i];
    w->computed_wrong = true;
    w->excused = w->excused || w->r->ended;
    if (!w->excused && !run.lossy) {
        fail(f->number, "request %d (computed %d, tokens %d, drafts %d), %s", w->r->number, w->computed, row->tokens,
            row->drafts, w->wrong);
    }
    show("  request %d reads garbage: %s", w->r->number, w->wrong);
    spoil(f, i);
}

/* The worker's text after the row, and what the host gets. */
static void settle(struct flight *f, int64_t i) {
    const llm_cache_row *row = &f->step.rows.at[i];
    struct row *w = &f->rows[i];
    struct text *t = &w->r->worker;
    if (!row->samples) {
        return;
    }
    int end = w->computed + row->tokens - row->drafts;
    cut(t, end);
    if (w->computed_wrong) {
        w->count = draw(row->drafts + 2);
        for (int k = 0; k < w->count; k++) {
            w->sampled[k] = draw(VOCABULARY);
        }
    }
    for (int k = 0; k < w->count; k++) {
        put_token(t, end + k, w->sampled[k]);
    }
    if (w->silent) {
        w->count = 0;
        cut(t, end);
    }
    total.drafts += row->drafts;
    total.accepted += w->count > 1 ? w->count - 1 : 0;
}

static void drop_tables(const llm_cache_step *s) {
    for (int64_t i = 0; i < s->preempted.len; i++) {
        struct request *r = find(s->preempted.at[i]);
        if (r != NULL) {
            drop_table(r);
            total.preempted++;
        }
    }
    for (int64_t i = 0; i < s->finished.len; i++) {
        struct request *r = find(s->finished.at[i]);
        if (r != NULL) {
            drop_table(r);
            r->dropped = true;
            total.finished++;
        }
    }
}

static void copy_blocks(const struct flight *f, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const llm_cache_copy *c = &f->step.copies.at[i];
        memcpy(run.memory[c->dst], run.memory[c->src], sizeof run.memory[0]);
        if (c->index < 0) {
            continue;
        }
        struct request *r = find(c->id);
        if (r == NULL || c->index >= r->len[c->group]) {
            fail(f->number, "the copy of block %d to %d goes into entry %d of request %d's table in group %d, "
                "which has %d entries", c->src, c->dst, c->index,
                 r == NULL ? -1 : r->number, c->group, r == NULL ? 0 : r->len[c->group]);
        }
        set_entry(r, c->group, c->index, c->dst);
    }
    total.copies += n;
}

/* The order of llm_cache.h: tables that are gone, blocks to zero, copies, tables, loads, rows. */
static void execute(struct flight *f) {
    llm_cache_step *s = &f->step;
    show("execute step %d", f->number);
    f->executed = true;
    drop_tables(s);
    for (int64_t i = 0, drafts = 0; i < s->rows.len; drafts += s->rows.at[i++].drafts) {
        take_input(f, i, s->drafts.at + drafts);
    }
    poison_new(f);
    for (int64_t i = 0; i < s->zero.len; i++) {
        fill(s->zero.at[i], ZERO);
        total.zeroed++;
    }
    copy_blocks(f, s->copies.len);
    change_tables(f);
    for (int64_t i = 0; i < s->loads.len; i++) {
        struct request *r = find(s->loads.at[i].id);
        if (r != NULL) {
            begin_load(r);
        }
    }
    for (int64_t i = 0; i < s->tails.len; i++) {
        struct request *r = find(s->tails.at[i].id);
        char wrong[400];
        bool wrong_row = false;
        for (int64_t k = 0; k < s->rows.len; k++) {
            wrong_row = wrong_row || (f->rows[k].r == r && f->rows[k].computed_wrong);
        }
        if (r != NULL && !r->ended && !wrong_row && !reads_state(s->tails.at[i].group, s->tails.at[i].block, &r->host,
            s->tails.at[i].tokens, wrong, sizeof wrong)) {
            fail(f->number, "the tail of request %d, %s", r->number, wrong);
        }
        total.tails++;
    }
    for (int64_t i = 0; i < s->rows.len; i++) {
        struct row *w = &f->rows[i];
        int from = w->computed - s->rows.at[i].external, n = 0;
        if (s->rows.at[i].external > 0) {
            if (chance(run.rates.lose)) {
                n = choose_lost(w->r->table, w->r->len, from, w->computed, f->lost + f->n_lost,
                    (int)(sizeof f->lost / sizeof f->lost[0]) - f->n_lost);
            }
            load_into(w->r, w->r->table, w->r->len, &w->r->worker, from, w->computed, f->lost + f->n_lost, n);
            f->n_lost += n;
            total.loads++;
        }
    }
    run.lossy = false;
    for (int q = run.head; q < run.tail; q++) {
        run.lossy = run.lossy || (flight(q)->executed && flight(q)->n_lost > 0);
    }
    for (int64_t i = 0, slot = 0; i < s->rows.len; slot += s->rows.at[i++].tokens) {
        if (f->rows[i].computed_wrong) {
            spoil(f, i);
        } else {
            write_row(f, i, slot);
        }
    }
    int turn = s->rows.len > 0 ? draw((int)s->rows.len) : 0; /* rows are computed in no particular order */
    for (int64_t k = 0; run.mamba && k < s->rows.len; k++) {
        int64_t i = (k + turn) % s->rows.len;
        if (!f->rows[i].computed_wrong && !run_states(f, i)) {
            judge(f, i);
        }
    }
    for (bool again = true; again;) { /* what a row reads can be what another one computes in the same step */
        again = false;
        for (int64_t i = 0; i < s->rows.len; i++) {
            if (!f->rows[i].computed_wrong && !read_row(f, i)) {
                judge(f, i);
                again = true;
            }
        }
    }
    for (int64_t i = 0; i < s->rows.len; i++) {
        settle(f, i);
        f->rows[i].r->forked = false;
    }
    bool all_known = run.config.hash == LLM_CACHE_HASH_NONE && !run.mamba && !run.consumer && !run.producer;
    for (int i = 0; i < REQUESTS; i++) {
        all_known = all_known && !(live(&run.requests[i]) && (run.requests[i].received || run.requests[i].forked));
    }
    if (all_known && draw(8) == 0) { /* who has blocks has a table */
        for (int32_t b = 1; b < run.config.num_gpu_blocks; b++) {
            if (run.refs[b] == 0) {
                fill(b, POISON);
            }
        }
    }
    for (int i = 0; i < REQUESTS; i++) {
        forget(&run.requests[i]);
    }
}

/* A step that fails: some of it is done. */
static void execute_partly(struct flight *f) {
    const llm_cache_step *s = &f->step;
    drop_tables(s);
    if (chance(30)) {
        return;
    }
    for (int64_t i = 0, drafts = 0; i < s->rows.len; drafts += s->rows.at[i++].drafts) {
        take_input(f, i, s->drafts.at + drafts);
    }
    for (int64_t i = 0; i < s->zero.len; i++) {
        fill(s->zero.at[i], ZERO);
    }
    if (chance(30)) {
        copy_blocks(f, draw((int)s->copies.len + 1));
        return;
    }
    copy_blocks(f, s->copies.len);
    change_tables(f);
    for (int64_t i = 0, slot = 0; i < s->rows.len; slot += s->rows.at[i++].tokens) {
        if (chance(50) || f->rows[i].computed_wrong) {
            spoil(f, i);
        } else if (chance(50)) {
            write_row(f, i, slot);
        }
    }
}

static void execute_next(void) {
    struct flight *f = flight(run.next);
    execute(f);
    run.next++;
    while (run.head < run.next && flight(run.head)->step.rows.len == 0) {
        run.head++;
    }
}

/* ---- Updates ---- */

static bool stops(const struct request *r, int32_t token) {
    for (int i = 0; i < r->n_stop; i++) {
        if (r->stop[i] == token) {
            return true;
        }
    }
    return false;
}

/* Why a request has finished, with its last token; 0: it has not. */
static int reason_of(const struct request *r) {
    int generated = r->host.n - r->prompt;
    if (generated >= r->min_tokens && stops(r, r->host.at[r->host.n - 1])) {
        return LLM_CACHE_STOPPED;
    }
    return generated >= r->max_tokens || r->host.n >= run.config.max_model_len ? LLM_CACHE_LENGTH : 0;
}


/* Takes what counts of the tokens of a row, and returns why the request has finished. */
static int take_tokens(struct flight *f, int64_t i, int kept) {
    struct row *w = &f->rows[i];
    struct request *r = w->r;
    const llm_cache_row *row = &f->step.rows.at[i];
    bool void_row = w->computed_wrong || w->ignored || w->silent;
    if (w->computed_wrong && !w->excused && !r->ended) {
        fail(f->number, "request %d (computed %d, tokens %d, drafts %d) reads what a failed load left and is "
            "not void, %s", r->number, w->computed, row->tokens,
             row->drafts, w->wrong);
    }
    if (kept < 0 || kept > w->count || (kept > 0 && (r->ended || void_row))) {
        fail(f->number, "request %d: %d of %d tokens count%s%s%s", r->number, kept, w->count, r->ended
            ? ", though it has ended" : "",
             void_row ? ", though the row is void: " : "", void_row ? w->wrong : "");
    }
    int reason = 0;
    for (int k = 0; k < kept; k++) {
        if (reason != 0) {
            fail(f->number, "request %d: %d of %d tokens count, and it ends after %d", r->number, kept, w->count, k);
        }
        int32_t token = sampled_after(&r->host, r->host.n);
        if (w->sampled[k] != token) {
            fail(f->number, "request %d: its token %d is %d, and alone it would be %d", r->number, r->host.n,
                w->sampled[k], token);
        }
        put_token(&r->host, r->host.n, token);
        reason = reason_of(r);
    }
    if (kept < w->count && reason == 0 && !r->ended && !void_row && r->preempted_in <= f->number) {
        fail(f->number, "request %d: %d of %d tokens count, and it goes on", r->number, kept, w->count);
    }
    return reason;
}

/* Blocks of a row that sampled nothing are forgotten. */
static void poison_row(struct row *w, int tokens) {
    for (int g = 0; g < run.n_groups; g++) {
        int size = run.groups[g].block_size;
        for (int p = w->computed; p < w->computed + tokens && run.groups[g].kind != LLM_CACHE_MAMBA; p++) {
            int32_t block = p / size < w->r->len[g] ? w->r->table[g][p / size] : 0;
            if (block != 0 && run.refs[block] == 1) {
                write_word(block, p % size, bits(), POISON, run.number);
            }
        }
    }
}

static void update(void) {
    while (run.next <= run.head) {
        execute_next();
    }
    struct flight *f = flight(run.head);
    int64_t rows = f->step.rows.len, n = 0;
    int32_t counts[MAX_ROWS], tokens[MAX_ROWS * (MAX_DRAFTS + 1)], kept[MAX_ROWS];
    llm_cache_done done[MAX_ROWS];
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = {.at = kept, .cap = MAX_ROWS}, .done = {.at = done,
        .cap = MAX_ROWS}};
    if (f->n_lost > 0) {
        show("step %d: %d blocks lost", f->number, f->n_lost);
        load_failed(f->lost, f->n_lost);
    }
    for (int64_t i = 0; i < rows; i++) {
        counts[i] = f->rows[i].count;
        memcpy(tokens + n, f->rows[i].sampled, (size_t)counts[i] * sizeof tokens[0]);
        n += counts[i];
    }
    MUST(llm_cache_update(run.cache, counts, rows, tokens, n, &outcome));
    run.quiet = false;
    show("update step %d", f->number);
    run.head++;
    run.in_flight--;
    int reasons[MAX_ROWS];
    for (int64_t i = 0; i < rows; i++) {
        struct row *w = &f->rows[i];
        reasons[i] = take_tokens(f, i, kept[i]);
        w->r->rows--;
        if (w->silent && !w->r->ended) {
            total.silent++;
            show("  request %d sampled nothing", w->r->number);
            if (!w->ignored) {
                ignore_rows(w->r);
            }
            if (run.head == run.tail && !w->ignored) {
                poison_row(w, f->step.rows.at[i].tokens);
            }
        }
    }
    int64_t at = 0;
    for (int64_t i = 0; i < rows; i++) {
        struct request *r = f->rows[i].r;
        bool listed = at < outcome.done.len && outcome.done.at[at].id == r->id;
        if (listed != (reasons[i] != 0) || (listed && outcome.done.at[at].reason != reasons[i])) {
            fail(f->number, "request %d with %d tokens, %d of them generated, has finished for reason %d; "
                "the library says %d", r->number, r->host.n,
                 r->host.n - r->prompt, reasons[i], listed ? outcome.done.at[at].reason : 0);
        }
        at += listed;
        if (listed) {
            show("  request %d has finished", r->number);
            end_request(r, false, f->rows[i].count > kept[i]);
        }
        forget(r);
    }
    if (at != outcome.done.len) {
        fail(f->number, "a request has finished that has no row");
    }
    while (run.head < run.next && flight(run.head)->step.rows.len == 0) {
        run.head++;
    }
}

static void fail_steps(void) {
    bool whole = true;
    for (; run.next < run.tail; run.next++) {
        struct flight *f = flight(run.next);
        if (f->step.rows.len == 0 || (whole && chance(30))) {
            execute(f);
        } else {
            if (whole) {
                execute_partly(f);
            }
            whole = false;
            for (int64_t i = 0; i < f->step.loads.len; i++) {
                struct request *r = find(f->step.loads.at[i].id);
                if (r != NULL) {
                    begin_load(r);
                }
            }
        }
    }
    MUST(llm_cache_step_failed(run.cache));
    run.quiet = false;
    show("steps %d to %d failed", flight(run.head)->number, run.number);
    for (int q = run.head; q < run.tail; q++) {
        for (int64_t i = 0; i < flight(q)->step.rows.len; i++) {
            flight(q)->rows[i].r->rows--;
        }
    }
    run.head = run.next = run.tail;
    run.in_flight = 0;
    total.fails++;
    for (int i = 0; i < REQUESTS; i++) {
        forget(&run.requests[i]);
    }
}

/* ---- The host ---- */

static struct request *free_request(void) {
    int left = 0;
    struct request *r = NULL;
    for (int i = 0; i < REQUESTS; i++) {
        left += !run.requests[i].used;
        r = run.requests[i].used ? r : &run.requests[i];
    }
    return left > 2 ? r : NULL;
}

/* A request that is there, at random. */
static struct request *any(bool (*fits)(const struct request *)) {
    int first = draw(REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &run.requests[(first + i) % REQUESTS];
        if (r->used && fits(r)) {
            return r;
        }
    }
    return NULL;
}

static uint64_t root_of(int salt, int lora) {
    return mix(run.seed + mix(run.weights * 64 + (uint64_t)salt * 8 + (uint64_t)lora));
}

static void add(void) {
    static const char *const salts[] = {NULL, "salt:a", "salt:b"}, *const loras[] = {NULL, "adapter 1", "adapter 2"};
    struct request *r = free_request();
    if (r == NULL) {
        return;
    }
    int len = run.config.max_model_len, salt = chance(10) ? between(1, 2) : 0, lora = chance(10) ? between(1, 2) : 0;
    *r = (struct request){.number = run.added, .flags = 0};
    r->prompt = chance(10) ? 1 : between(1, len - 1);
    const struct request *other = &run.requests[draw(REQUESTS)]; /* also one that has ended */
    if (run.newest != NULL && chance(40)) {
        other = run.newest;
    }
    int common = chance(20) ? 0 : draw(r->prompt + 1);
    if (other->host.n > 0 && chance(50)) {
        common = chance(50) ? r->prompt : common;
        common = common < other->host.n ? common : other->host.n;
        memcpy(r->host.at, other->host.at, (size_t)common * sizeof r->host.at[0]);
    } else {
        memcpy(r->host.at, run.streams[draw(STREAMS)], (size_t)common * sizeof r->host.at[0]);
    }
    for (int i = common; i < r->prompt; i++) {
        r->host.at[i] = draw(VOCABULARY);
    }
    r->host.n = r->prompt;
    r->host.hashed = -1;
    r->host.root = root_of(salt, lora);
    r->max_tokens = chance(20) ? 1 : between(1, 40);
    int most = r->max_tokens < len - r->prompt ? r->max_tokens : len - r->prompt;
    r->min_tokens = chance(70) ? 0 : draw(most + 1);
    r->n_stop = draw(3);
    r->stop[0] = draw(VOCABULARY), r->stop[1] = draw(VOCABULARY);
    r->flags |= chance(run.consumer ? 25 : 10) ? LLM_CACHE_NO_READ : 0;
    r->flags |= chance(run.rates.hold) ? LLM_CACHE_HOLD : 0;
    r->flags |= run.producer && chance(50) ? LLM_CACHE_SEND : 0;
    int external = 0;
    if (run.consumer && chance(60)) {
        external = chance(20) ? r->prompt : between(1, r->prompt);
        r->flags |= chance(50) ? LLM_CACHE_LOAD_ASYNC : 0;
        if (chance(20)) {
            r->flags |= LLM_CACHE_ASK;
            r->flags &= ~(uint32_t)LLM_CACHE_LOAD_ASYNC;
            external = 0;
        }
    }
    llm_cache_spec spec = {.size = sizeof spec, .flags = r->flags, .tokens = {r->host.at, r->prompt},
        .max_tokens = r->max_tokens,
                           .min_tokens = r->min_tokens, .stop = {r->stop, r->n_stop}, .salt = salts[salt],
                               .lora = loras[lora], .lora_id = lora,
                           .arrival = chance(20) ? draw(run.added + 1) : run.added, .priority = draw(3),
                               .external = external,
                           .user_data = (uint64_t)r->number};
    int error = llm_cache_add(run.cache, &spec, &r->id);
    if (error == LLM_CACHE_E_RANGE) {
        total.refused++;
        return;
    }
    must(error, "llm_cache_add");
    run.added++;
    run.quiet = false;
    run.newest = r;
    r->used = true;
    r->held = (r->flags & LLM_CACHE_HOLD) != 0;
    r->asking = (r->flags & LLM_CACHE_ASK) != 0;
    show("add request %d: %d tokens, at most %d, flags %x, external %d, priority %d", r->number, r->prompt,
        r->max_tokens, r->flags, external, spec.priority);
}

static void abort_request(struct request *r) {
    int64_t aborted = 0;
    MUST(llm_cache_abort(run.cache, &r->id, 1, &aborted));
    show("abort request %d", r->number);
    if (aborted != 1) {
        fail(run.number, "llm_cache_abort: request %d was live, and aborted is %lld", r->number, (long long)aborted);
    }
    run.quiet = false;
    total.aborts++;
    end_request(r, true, false);
    for (int i = 0; i < REQUESTS; i++) {
        forget(&run.requests[i]);
    }
}

static bool generates(const struct request *r) { return live(r) && r->host.n > r->prompt; }

static void fork_request(void) {
    struct request *parent = any(generates), *child = free_request();
    if (parent == NULL || child == NULL || run.in_flight > 0) {
        return;
    }
    int32_t last = chance(50) ? draw(VOCABULARY) : -1;
    llm_request id;
    MUST(llm_cache_fork(run.cache, parent->id, last, run.added, &id));
    run.quiet = false;
    *child = (struct request){
        .used = true, .forked = true, .received = true, .id = id, .number = run.added++, .host = parent->host,
        .prompt = parent->prompt, .max_tokens = parent->max_tokens,
        .min_tokens = parent->min_tokens, .n_stop = parent->n_stop,
    };
    memcpy(child->stop, parent->stop, sizeof child->stop);
    if (last >= 0) {
        put_token(&child->host, child->host.n - 1, last);
    }
    show("fork request %d from %d, last %d", child->number, parent->number, last);
    total.forks++;
}

static void set_drafts(void) {
    llm_request ids[REQUESTS];
    int32_t counts[REQUESTS], tokens[REQUESTS * MAX_DRAFTS];
    int64_t n = 0, all = 0;
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &run.requests[i];
        if (!live(r) || chance(20)) {
            continue;
        }
        struct text *t = &r->host;
        int known = t->n;
        ids[n] = r->id;
        counts[n] = draw(run.config.num_speculative_tokens + 1);
        for (int k = 0; k < counts[n]; k++) {
            int32_t token = chance(70) ? sampled_after(t, t->n) : draw(VOCABULARY);
            put_token(t, t->n, token);
            tokens[all++] = run.async ? -1 : token;
        }
        cut(t, known);
        n++;
    }
    MUST(llm_cache_set_drafts(run.cache, ids, counts, n, tokens, all));
    run.quiet = false;
}

static void match(struct request *r) {
    int external = chance(20) ? 0 : chance(20) ? r->prompt : between(1, r->prompt);
    MUST(llm_cache_match(run.cache, r->id, external, external > 0 && chance(50) ? LLM_CACHE_LOAD_ASYNC : 0));
    show("match request %d: %d", r->number, external);
    run.quiet = false;
    r->asking = r->asked = false;
}

/* The blocks of a request that has finished hold its first `computed` tokens, until this call. */
static void send(struct request *r) {
    int64_t computed, tokens;
    static int32_t table[MAX_GROUPS][ENTRIES];
    int len[MAX_GROUPS];
    char wrong[400];
    MUST(llm_cache_progress(run.cache, r->id, &computed, &tokens));
    for (int g = 0; g < run.n_groups; g++) {
        llm_cache_i32s array = {.at = table[g], .cap = ENTRIES};
        MUST(llm_cache_table(run.cache, r->id, g, &array));
        len[g] = (int)array.len;
    }
    if (computed > r->host.n || !has_prefix(table, len, &r->host, (int)computed, !r->ran_on, wrong, sizeof wrong)) {
        fail(run.number, "request %d has finished, and to send its %lld computed tokens, %s", r->number,
            (long long)computed, wrong);
    }
    MUST(llm_cache_sent(run.cache, &r->id, 1));
    show("sent: request %d", r->number);
    run.quiet = false;
    r->sending = false;
    total.sent++;
    forget(r);
}

static bool is_held(const struct request *r) { return live(r) && r->held; }
static bool is_asked(const struct request *r) { return live(r) && r->asked; }
static bool has_load(const struct request *r) { return r->used && r->loading && r->begun; }
/* The steps that write its blocks are over. */
static bool has_blocks_to_send(const struct request *r) {
    return r->used && r->sending && (run.next == run.tail || flight(run.next)->number > r->ended_after);
}

static void release(struct request *r) {
    MUST(llm_cache_release(run.cache, &r->id, 1));
    show("release request %d", r->number);
    run.quiet = false;
    r->held = false;
}

static void reset(void) {
    int preempt = chance(70);
    int error = llm_cache_reset(run.cache, preempt);
    if (error == LLM_CACHE_E_BUSY) {
        bool excuse = !preempt || (run.consumer && run.depth > 1 && run.in_flight > 0);
        for (int i = 0; i < REQUESTS; i++) {
            excuse = excuse || (run.requests[i].used && (run.requests[i].loading || run.requests[i].received ||
                run.requests[i].sending));
        }
        if (!excuse) {
            fail(run.number, "llm_cache_reset is LLM_CACHE_E_BUSY, and nothing is loaded or sent: %s",
                llm_cache_error_detail());
        }
        return;
    }
    must(error, "llm_cache_reset");
    show("reset");
    for (int i = 0; i < REQUESTS; i++) {
        run.requests[i].preempted_in = run.number + 1;
    }
    run.quiet = false;
    total.resets++;
    if (run.head == run.tail) { /* other weights */
        uint64_t old = run.weights++;
        for (int i = 0; i < REQUESTS; i++) {
            struct request *r = &run.requests[i];
            for (int k = 0; k < 9 && r->used; k++) {
                uint64_t weights = run.weights;
                run.weights = old;
                bool same = r->host.root == root_of(k / 3, k % 3);
                run.weights = weights;
                if (same) {
                    r->host.root = root_of(k / 3, k % 3);
                    r->host.hashed = -1;
                    break;
                }
            }
        }
    }
}

/* ---- What holds at any time ---- */

static void check_state(void) {
    llm_cache_stats stats = {.size = sizeof stats};
    MUST(llm_cache_statistics(run.cache, &stats));
    total.hits += stats.hits + stats.resumed_hits;
    int alive = 0, loading = 0;
    static bool named[MAX_BLOCKS];
    memset(named, 0, (size_t)run.config.num_gpu_blocks);
    bool hidden = false; /* blocks that no table shows */
    int64_t n = 0;
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &run.requests[i];
        alive += live(r);
        loading += live(r) && r->loading;
        hidden = hidden || (r->used && r->ended);
        if (!live(r) && !(r->used && r->sending)) {
            continue;
        }
        bool scheduled = false; /* in the newest step, which was executed, and nothing happened since */
        for (int64_t k = 0; run.quiet && run.next == run.tail && run.head < run.tail &&
            k < flight(run.tail - 1)->step.rows.len; k++) {
            scheduled = scheduled || flight(run.tail - 1)->rows[k].r == r;
        }
        int64_t computed, tokens;
        MUST(llm_cache_progress(run.cache, r->id, &computed, &tokens));
        if (computed > tokens + 2 * MAX_DRAFTS * 8 || (run.head == run.tail &&
            (tokens != r->host.n || computed > tokens))) {
            fail(run.number, "request %d has %d tokens; the library says %lld, %lld computed", r->number, r->host.n,
                (long long)tokens, (long long)computed);
        }
        for (int g = 0; g < run.n_groups; g++) {
            int32_t blocks[ENTRIES];
            llm_cache_i32s table = {.at = blocks, .cap = ENTRIES};
            MUST(llm_cache_table(run.cache, r->id, g, &table));
            for (int64_t k = 0; k < table.len; k++) {
                n += blocks[k] != 0 && !named[blocks[k]];
                named[blocks[k]] = true;
            }
            for (int k = 0; scheduled && k < r->len[g] && k < table.len; k++) {
                if (r->table[g][k] != blocks[k] && blocks[k] != 0) {
                    fail(run.number, "request %d, group %d (%s): entry %d is block %d, and the worker has %d",
                        r->number, g, kind_of(g), k, blocks[k], r->table[g][k]);
                }
            }
        }
    }
    if (stats.running + stats.waiting != alive || stats.in_flight != run.in_flight) {
        fail(run.number, "%d requests live, %d of them loading, %d steps in flight; the library says %lld running, "
            "%lld waiting, %lld in flight", alive, loading,
             run.in_flight, (long long)stats.running, (long long)stats.waiting, (long long)stats.in_flight);
    }
    if (stats.blocks != run.config.num_gpu_blocks - 1 || n + stats.free_blocks > stats.blocks ||
        (run.in_flight == 0 && !run.mamba && !hidden && n + stats.free_blocks != stats.blocks)) {
        fail(run.number, "%lld blocks: %lld are free, %lld in tables, %lld deferred; %lld requests are kept, "
            "%lld loading", (long long)stats.blocks,
             (long long)stats.free_blocks, (long long)n, (long long)stats.deferred_blocks, (long long)stats.kept,
                 (long long)stats.loading);
    }
    if (alive == 0 && run.in_flight == 0) {
        bool kept = false;
        for (int i = 0; i < REQUESTS; i++) {
            kept = kept || (run.requests[i].used && (run.requests[i].loading || run.requests[i].sending));
        }
        if (!kept && (stats.free_blocks != stats.blocks || stats.kept != 0 || stats.loading != 0 ||
            stats.deferred_blocks != 0)) {
            fail(run.number, "all requests have ended: of %lld blocks %lld are free, %lld deferred, "
                "%lld requests are kept, %lld loading", (long long)stats.blocks,
                 (long long)stats.free_blocks, (long long)stats.deferred_blocks, (long long)stats.kept,
                     (long long)stats.loading);
        }
    }
    if (run.config.flags & LLM_CACHE_EVENTS) {
        while (llm_cache_drain(run.cache, &events) == LLM_CACHE_E_SMALL) {
            GROW(events.events), GROW(events.hashes), GROW(events.tokens);
        }
    }
}

/* ---- A run ---- */

enum { KINDS = 10, MODES = 5 };

static llm_cache_group group(int kind, int size) {
    llm_cache_group g = {.kind = kind, .block_size = size};
    switch (kind) {
    case LLM_CACHE_SLIDING_WINDOW:
        g.window = between(1, 3 * size + 3);
        g.retained = chance(20) ? between(1, 2 * size) : 0;
        break;
    case LLM_CACHE_CHUNKED_LOCAL: g.chunk = between(1, 4) * size; break;
    case LLM_CACHE_MAMBA: g.flags = LLM_CACHE_GROUP_ALIGN; break;
    default: break;
    }
    return g;
}

static void choose_groups(int kind) {
    int size = PICK(1, 2, 4, 4, 8, 16), other = chance(50) ? size : size > 8 ? size / 2 : size * 2;
    llm_cache_group *g = run.groups;
    int *n = &run.n_groups;
    *n = 0;
    switch (kind) {
    case 0: g[(*n)++] = group(LLM_CACHE_FULL, size); break;
    case 1: g[(*n)++] = group(LLM_CACHE_FULL, size), g[(*n)++] = group(LLM_CACHE_SLIDING_WINDOW, other); break;
    case 2: g[(*n)++] = group(LLM_CACHE_SLIDING_WINDOW, size); break;
    case 3: g[(*n)++] = group(LLM_CACHE_SLIDING_WINDOW, size), g[(*n)++] = group(LLM_CACHE_FULL, other),
        g[(*n)++] = group(LLM_CACHE_SLIDING_WINDOW, size); break;
    case 4: g[(*n)++] = group(LLM_CACHE_FULL, size), g[(*n)++] = group(LLM_CACHE_CHUNKED_LOCAL, size); break;
    case 5: g[(*n)++] = group(LLM_CACHE_CHUNKED_LOCAL, size); break;
    case 6: g[(*n)++] = group(LLM_CACHE_FULL, size), g[(*n)++] = group(LLM_CACHE_MAMBA, size * PICK(1, 1, 2, 4)); break;
    case 7: g[(*n)++] = group(LLM_CACHE_MAMBA, size * PICK(1, 2)); break;
    case 8: g[(*n)++] = group(LLM_CACHE_FULL, size), g[(*n)++] = group(LLM_CACHE_MAMBA, run.config.max_model_len),
        g[1].flags = 0; break;
    default:
        for (int k = between(2, MAX_GROUPS); k > 0; k--) {
            g[(*n)++] = group(PICK(LLM_CACHE_FULL, LLM_CACHE_SLIDING_WINDOW, LLM_CACHE_CHUNKED_LOCAL, LLM_CACHE_MAMBA),
                chance(70) ? size : other);
        }
    }
}

static int open_cache(int kind, int mode) {
    llm_cache_config *c = &run.config;
    *c = (llm_cache_config){.size = sizeof *c, .hash_seed = "0"};
    c->max_model_len = between(8, MAX_LEN);
    choose_groups(kind);
    c->max_num_seqs = between(1, MAX_ROWS);
    c->max_num_batched_tokens = chance(50) ? between(c->max_num_seqs, 24) : between(16, 160);
    c->policy = chance(40) ? LLM_CACHE_PRIORITY : LLM_CACHE_FCFS;
    c->hash = chance(15) ? LLM_CACHE_HASH_NONE : chance(50) ? LLM_CACHE_HASH_XXH3 : LLM_CACHE_HASH_SHA256;
    c->long_prefill_token_threshold = chance(20) ? between(1, 32) : 0;
    c->watermark = chance(20) ? draw(20) / 100.0 : 0;
    c->max_in_flight_tokens = chance(40) ? c->max_num_batched_tokens * 6 : 0;
    c->scheduler_block_size = 0;
    c->max_loras = chance(20) ? 1 : 0;
    run.mamba = run.drafting = run.narrow = false;
    bool sparse = false;
    run.page = 1;
    for (int g = 0; g < run.n_groups; g++) {
        run.mamba = run.mamba || run.groups[g].kind == LLM_CACHE_MAMBA;
        sparse = sparse || run.groups[g].kind == LLM_CACHE_MAMBA || run.groups[g].kind == LLM_CACHE_SLIDING_WINDOW;
        if (run.groups[g].kind != LLM_CACHE_MAMBA && run.groups[g].block_size > run.page) {
            run.page = run.groups[g].block_size;
        }
    }
    run.async = mode == 1 || mode == 4;
    c->flags |= run.async ? LLM_CACHE_ASYNC : 0;
    c->pipeline_parallel_size = mode == 2 ? 2 : mode == 3 ? between(3, 4) : mode == 4 ? 2 : 0;
    run.depth = c->pipeline_parallel_size > 0 ? c->pipeline_parallel_size : 1;
    run.depth += run.async;
    if (mode != 0 && chance(20)) {
        c->max_concurrent_batches = run.depth = between(2, 4);
    }
    if (chance(30)) {
        c->num_speculative_tokens = between(1, MAX_DRAFTS);
        run.drafting = true;
        if (chance(40)) {
            c->flags |= LLM_CACHE_EAGLE;
            c->num_lookahead_tokens = c->num_speculative_tokens;
            for (int g = 0; g < run.n_groups; g++) {
                run.groups[g].flags |= run.groups[g].kind != LLM_CACHE_MAMBA && chance(50) ? LLM_CACHE_GROUP_EAGLE : 0;
            }
        }
        for (int g = 0; g < run.n_groups; g++) {
            if (run.groups[g].kind == LLM_CACHE_MAMBA) {
                run.groups[g].num_speculative_blocks = c->num_speculative_tokens;
                run.narrow = run.narrow || run.groups[g].block_size <= c->num_speculative_tokens;
            }
        }
        c->flags |= run.depth == 1 && chance(30) ? LLM_CACHE_RETURN_DRAFTS : 0;
    }
    c->retention_interval = sparse ? PICK(0, 0, -1, 32, 64) : PICK(0, -1);
    c->flags |= chance(10) ? LLM_CACHE_WHOLE_PREFILLS : 0;
    c->flags |= chance(30) ? LLM_CACHE_ADMIT_CHUNKS : 0;
    c->flags |= chance(20) ? LLM_CACHE_EVENTS : 0;
    c->flags |= chance(20) ? LLM_CACHE_ZERO_BLOCKS : 0;
    run.consumer = chance(35), run.producer = chance(25);
    c->flags |= run.consumer ? LLM_CACHE_KV_CONSUMER : 0;
    c->flags |= run.producer ? LLM_CACHE_KV_PRODUCER : 0;
    c->flags |= (run.producer || run.consumer) && chance(20) ? LLM_CACHE_KV_BEST_EFFORT : 0;
    int need = 2;
    for (int g = 0; g < run.n_groups; g++) {
        const llm_cache_group *s = &run.groups[g];
        need += (c->max_model_len + c->num_lookahead_tokens) / s->block_size + 2 + 2 * s->num_speculative_blocks;
    }
    c->num_gpu_blocks = need + draw(chance(50) ? need : 3 * need);
    c->groups = run.groups;
    c->groups_len = run.n_groups;
    CHECK(c->num_gpu_blocks <= MAX_BLOCKS);
    if (kind == 0 && !(run.groups[0].flags) && chance(50)) {
        c->block_size = run.groups[0].block_size;
        c->groups = NULL, c->groups_len = 0;
    }
    /* No draft may cross two ends of blocks of a Mamba group: the state after it would be in a speculative block. */
    return run.narrow ? LLM_CACHE_E_RANGE : llm_cache_open(c, &run.cache);
}

static void start(uint64_t seed) {
    memset(&run, 0, sizeof run);
    run.seed = seed;
    random_state = mix(seed + 1);
    int kind = (int)(seed % KINDS), mode = (int)(seed / KINDS % MODES);
    for (int error, tries = 0; (error = open_cache(kind, mode)) != LLM_CACHE_OK; tries++) {
        if (error != LLM_CACHE_E_RANGE || tries > 100) {
            must(error, "llm_cache_open");
        }
        if (getenv("SHOW_REFUSED")) {
            printf("refused: %s\n", llm_cache_error_detail());
            print_setup(stdout);
        }
    }
    bool faults = chance(75);
    run.rates = (struct rates){.add = PICK(10, 30, 60), .abort = PICK(0, 1, 5), .fork = PICK(0, 0, 3),
        .silent = faults ? PICK(0, 1, 10) : 0,
                               .fail = faults ? PICK(0, 1, 5) : 0, .lose = faults ? PICK(0, 20, 60) : 0,
                                   .hold = PICK(0, 0, 20), .pause = PICK(0, 0, 1),
                               .reset = PICK(0, 0, 1), .drafts = PICK(50, 100), .match = PICK(0, 10), .eager = PICK(0,
                                   50, 100)};
    for (int32_t b = 0; b < run.config.num_gpu_blocks; b++) {
        fill(b, POISON);
    }
    for (int i = 0; i < STREAMS; i++) {
        for (int p = 0; p < MAX_LEN; p++) {
            run.streams[i][p] = draw(VOCABULARY);
        }
    }
    if (show_from >= 0) {
        print_setup(stdout);
    }
}

static void act(void) {
    struct request *r;
    const struct rates *k = &run.rates;
    if (!run.ending) {
        if (chance(k->add)) {
            add();
        }
        if (chance(k->abort) && (r = any(live)) != NULL) {
            abort_request(r);
        }
        if (chance(k->pause)) {
            run.paused = PICK(LLM_CACHE_PAUSE_NONE, LLM_CACHE_PAUSE_NEW, LLM_CACHE_PAUSE_ALL);
            MUST(llm_cache_pause(run.cache, run.paused));
            run.quiet = false;
        }
        if (chance(k->reset)) {
            reset();
        }
        if (chance(k->fork)) {
            fork_request();
        }
        if (run.consumer && chance(k->match) && (r = any(live)) != NULL && !r->asking && !r->loading) {
            match(r);
        }
    }
    if (run.paused != LLM_CACHE_PAUSE_NONE && chance(run.ending ? 100 : 10)) {
        run.paused = LLM_CACHE_PAUSE_NONE;
        MUST(llm_cache_pause(run.cache, run.paused));
        run.quiet = false;
    }
    if (chance(30) && (r = any(is_held)) != NULL) {
        release(r);
    }
    if (run.consumer && chance(30) && (r = any(is_asked)) != NULL) {
        match(r);
    }
    if (run.consumer && chance(30) && (r = any(has_load)) != NULL) {
        finish_load(r);
    }
    if (run.producer && chance(30) && (r = any(has_blocks_to_send)) != NULL) {
        send(r);
    }
    if (run.drafting && chance(k->drafts)) {
        set_drafts();
    }
    if (chance(4)) {
        check_state();
    }
}

static bool over(void) {
    for (int i = 0; i < REQUESTS; i++) {
        const struct request *r = &run.requests[i];
        if (live(r) || (r->used && (r->loading || r->sending))) {
            return false;
        }
    }
    return run.in_flight == 0;
}

static void play(uint64_t seed) {
    start(seed);
    for (int ticks = 0, ending = 0; !run.ending || !over(); ticks++) {
        if (!run.ending && (run.steps >= RUN_STEPS || ticks > 4 * RUN_STEPS)) {
            run.ending = true;
            ending = ticks;
        }
        if (run.ending && ticks - ending > PATIENCE) {
            fail(run.number, "after %d more ticks not all requests have ended", PATIENCE);
        }
        act();
        if (run.in_flight < run.depth && (run.in_flight == 0 || chance(85)) && run.tail - run.head < QUEUE / 2) {
            schedule();
        }
        act();
        while (run.next < run.tail && (chance(run.rates.eager) || run.tail - run.head >= QUEUE / 2)) {
            execute_next();
        }
        if (run.in_flight == 0) {
            while (run.next < run.tail) {
                execute_next();
            }
        } else if (!(run.ending && ticks - ending > PATIENCE / 2) && chance(run.rates.fail)) {
            fail_steps();
        } else if (run.in_flight == run.depth || chance(run.depth > 1 ? 30 : 100)) {
            update();
        }
    }
    check_state();
    MUST(llm_cache_close(run.cache));
    total.runs++;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "run") == 0) {
        show_from = argc > 3 ? atoll(argv[3]) : -1;
        play(strtoull(argv[2], NULL, 10));
    } else if (argc > 3 && strcmp(argv[1], "seeds") == 0) {
        for (uint64_t seed = strtoull(argv[2], NULL, 10); seed <= strtoull(argv[3], NULL, 10); seed++) {
            play(seed);
        }
    } else {
        int64_t steps = argc > 1 ? atoll(argv[1]) : 20000;
        uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        printf("seed %llu\n", (unsigned long long)seed);
        fflush(stdout);
        while (total.steps < steps) {
            play(seed++);
        }
    }
    printf("%lld steps in %lld runs, %lld tokens computed, %lld reads checked; "
        "requests: %lld finished or aborted, %lld of them aborted, %lld refused, "
           "%lld forks, %lld preempted, %lld resumed\n",
           (long long)total.steps, (long long)total.runs, (long long)total.tokens, (long long)total.reads,
               (long long)total.finished, (long long)total.aborts,
           (long long)total.refused, (long long)total.forks, (long long)total.preempted, (long long)total.resumed);
    printf("%lld tokens hit, %lld blocks copied, %lld zeroed, %lld loads, %lld blocks lost, %lld affected, "
        "%lld sent, %lld tails, %lld of %lld drafts accepted, "
           "%lld rows silent, %lld failures of steps, %lld resets\n",
           (long long)total.hits, (long long)total.copies, (long long)total.zeroed, (long long)total.loads,
               (long long)total.lost, (long long)total.affected,
           (long long)total.sent, (long long)total.tails, (long long)total.accepted, (long long)total.drafts,
               (long long)total.silent, (long long)total.fails,
           (long long)total.resets);
    for (int i = 0; i < QUEUE; i++) {
        step_free(&queue[i].step);
    }
    TAKE(events.events), TAKE(events.hashes), TAKE(events.tokens);
    return 0;
}

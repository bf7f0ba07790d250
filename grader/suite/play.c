//go:build ignore

#include "play.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "heap.h"

/*
 * The file is ints. A case: the number of blocks; calls that lead to a state; calls
 * that must fail and change nothing; calls that must succeed, each alone after the
 * first ones, with the state that it leads to. Each list begins with its length. -1
 * ends the file.
 */
enum { MOST_CALLS = 4096, MOST_INTS = 1 << 14, MOST_BLOCKS = 8 };
enum { INIT, CREATE, FORK, APPEND, FREE, DESTROY }; /* trace.Kind */

struct call {
    int kind, a, b, fail; /* the fail-th allocation of it fails */
};

struct picture {
    int n;
    int at[MOST_INTS];
};

static FILE *file;
static int pool[MOST_BLOCKS * KV_PER_BLOCK], blocks;
static LLMEngine *engine;
static struct call path[MOST_CALLS], refused[MOST_CALLS];
static int path_length, refused_length;
static struct picture before, after, expected;

static int number(void) {
    int n;
    if (fread(&n, sizeof n, 1, file) != 1) {
        fprintf(stderr, "the file of calls ends too early\n");
        exit(2);
    }
    return n;
}

static struct call next_call(void) {
    struct call c;
    c.kind = number();
    c.a = number();
    c.b = number();
    c.fail = number();
    return c;
}

static int read_calls(struct call *to) {
    int n = number();
    for (int i = 0; i < n; i++) {
        to[i] = next_call();
    }
    return n;
}

static void put(struct picture *p, int n) {
    if (p->n < MOST_INTS) {
        p->at[p->n++] = n;
    }
}

static void put_sequence(struct picture *p, const Sequence *seq) {
    put(p, seq->seq_id);
    put(p, seq->kv_count);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        put(p, seq->block_table[i] != NULL);
        for (int k = 0; seq->block_table[i] != NULL && k < L2_PT_SIZE; k++) {
            put(p, seq->block_table[i][k]);
        }
    }
}

/* All there is to see: the pool, the live allocations, and the engine if there is one. */
static void take(struct picture *p) {
    p->n = 0;
    for (int i = 0; i < blocks * KV_PER_BLOCK; i++) {
        put(p, pool[i]);
    }
    put(p, (int)heap_live());
    if (engine == NULL) {
        return;
    }
    put(p, engine->pool_base_ptr == pool && engine->total_local_blocks == blocks);
    put(p, engine->free_local_blocks);
    for (int i = 0; i < blocks; i++) {
        put(p, engine->ref_count[i]);
    }
    const struct list_node *head = &engine->active_seqs, *n = head->next;
    for (int i = 0; n != head && i < MOST_CALLS; i++, n = n->next) {
        put(p, n->next->prev == n && n->prev->next == n);
        put_sequence(p, (const Sequence *)((const char *)n - offsetof(Sequence, node)));
    }
}

static bool same(const struct picture *a, const struct picture *b) {
    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at) == 0;
}

static Sequence *last(void) {
    return (Sequence *)((char *)engine->active_seqs.prev - offsetof(Sequence, node));
}

/* Whether the call succeeded, and returned what it had to. */
static bool play(const struct call *c) {
    Sequence *made;
    bool ok = false;
    heap_fail_nth(c->fail);
    switch (c->kind) {
    case INIT:
        for (int i = 0; i < MOST_BLOCKS * KV_PER_BLOCK; i++) {
            pool[i] = -1 - i;
        }
        engine = llm_init(pool, (size_t)c->a);
        ok = engine != NULL;
        break;
    case CREATE:
    case FORK:
        made = c->kind == CREATE ? create_sequence(engine, c->a, c->b) : fork_sequence(engine, c->a, c->b);
        ok = made != NULL && made == last();
        break;
    case APPEND:
        ok = append_kv(engine, c->a, c->b) == 0;
        break;
    case FREE:
        ok = free_sequence(engine, c->a) == 0;
        break;
    case DESTROY:
        ok = llm_destroy(engine) == 0;
        engine = NULL;
        break;
    }
    heap_fail_nth(0);
    return ok;
}

static bool play_path(void) {
    heap_reset();
    bool ok = true;
    for (int i = 0; i < path_length; i++) {
        ok &= play(&path[i]);
    }
    return ok;
}

static int wrong(const struct call *c, const char *what, void (*say)(const char *, ...)) {
    static const char *const names[] = {"init", "create", "fork", "append", "free", "destroy"};
    for (int i = 0; i < path_length; i++) {
        say("%s e0 %d %d\n", names[path[i].kind], path[i].a, path[i].b);
    }
    say("%s e0 %d %d oom=%d\n%s\n", names[c->kind], c->a, c->b, c->fail, what);
    return 1;
}

/* One case, whose number of blocks has been read. */
static int play_case(void (*say)(const char *, ...)) {
    path_length = read_calls(path);
    refused_length = read_calls(refused);
    if (!play_path()) {
        return wrong(&path[path_length - 1], "one of these calls failed", say);
    }
    take(&before);
    for (int i = 0; i < refused_length; i++) {
        if (play(&refused[i])) {
            return wrong(&refused[i], "the last call must fail", say);
        }
        take(&after);
        if (!same(&before, &after)) {
            return wrong(&refused[i], "the last call fails, and must change nothing", say);
        }
    }
    llm_destroy(engine);
    for (int n = number(); n > 0; n--) {
        struct call c = next_call();
        expected.n = number();
        for (int i = 0; i < expected.n; i++) {
            expected.at[i] = number();
        }
        play_path();
        if (!play(&c)) {
            return wrong(&c, "the last call must succeed, and return the new sequence", say);
        }
        take(&after);
        if (!same(&expected, &after)) {
            return wrong(&c, "the last call leads to another state", say);
        }
        if (engine != NULL) {
            llm_destroy(engine);
        }
    }
    return 0;
}

int play_file(const char *name, void (*say)(const char *format, ...)) {
    int status = 0, cases = 0;
    file = fopen(name, "rb");
    if (file == NULL || heap_reset == NULL) {
        perror(file == NULL ? name : "heap.c is not linked");
        return 2;
    }
    while (status == 0 && (blocks = number()) > 0) {
        status = play_case(say);
        cases++;
    }
    fclose(file);
    say("%d states, %s\n", cases, status == 0 ? "every call in them as the handout says" : "stopped at the first difference");
    return status;
}

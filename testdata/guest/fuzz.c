/*
 * fuzz - plays bytes as calls, and as writes from outside between them, on the library
 * and on plain.h, and compares all that can be seen after each. It reads inputs from
 * standard input, each after its length, and answers with the number of operations;
 * it says what differs, and aborts, at the first difference.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <unistd.h>

#include "plain.h"

enum { BLOCKS = 48, MOST = 64, ENGINES = 2, SHORT_LIST = 16, MOST_BYTES = 1 << 16 };

/* The library's allocations: counted, failed on demand, and overwritten when freed. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void __libc_free(void *);
static volatile int counting, live, fail; /* the compiler takes malloc and free for those of the C library */

static int fails(void) { return counting && fail > 0 && (fail = fail - 1) == 0; }

void *malloc(size_t size) {
    void *p = fails() ? NULL : __libc_malloc(size);
    live = live + (counting && p != NULL);
    return p;
}

void *calloc(size_t n, size_t size) {
    void *p = fails() ? NULL : __libc_calloc(n, size);
    live = live + (counting && p != NULL);
    return p;
}

void free(void *p) {
    if (counting && p != NULL) {
        live = live - 1;
        memset(p, 0xa5, malloc_usable_size(p));
    }
    __libc_free(p);
}

/* A sequence's place in seqs is its name in both worlds. */
static struct world {
    LLMEngine *engine[ENGINES];
    int *pool[ENGINES];
    Sequence *seqs[MOST]; /* NULL once freed */
} worlds[2], *const ours = &worlds[0], *const theirs = &worlds[1];

static int made;
static int loose[MOST];   /* unlinked by hand, not freed */
static int home[MOST];    /* the engine whose list it is or was in */
static int migrant[MOST]; /* was linked into the other engine's list */
static int wild;          /* also what the header excludes after the first 16 of a list */
static int most;          /* sequences at a time */

static const unsigned char *bytes, *end;

static int next(int below) { return bytes < end ? *bytes++ % below : 0; }

static int any(void) {
    unsigned n = 0;
    for (int i = 0; i < 4; i++) {
        n = n << 8 | (unsigned)next(256);
    }
    return (int)n;
}

#define ONE_OF(...) ((const int[]){__VA_ARGS__}[next((int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))])

static void differ(const char *what, long ours_is, long theirs_is) {
    fprintf(stderr, "%s: %ld, the handout's is %ld\n", what, ours_is, theirs_is);
    abort();
}

#define SAME(what, a, b) ((a) == (b) ? (void)0 : differ(what, (long)(a), (long)(b)))

static long node_name(const struct world *w, const struct list_node *n) {
    if (n == NULL) {
        return -1;
    }
    for (int i = 0; i < ENGINES; i++) {
        if (n == &w->engine[i]->active_seqs) {
            return -2 - i;
        }
    }
    for (int i = 0; i < made; i++) {
        if (w->seqs[i] != NULL && n == &w->seqs[i]->node) {
            return i;
        }
    }
    return -100; /* freed */
}

static void compare_sequence(int name) {
    const Sequence *a = ours->seqs[name], *b = theirs->seqs[name];
    SAME("seq_id", a->seq_id, b->seq_id);
    SAME("kv_count", a->kv_count, b->kv_count);
    if (!loose[name]) { /* the links of one that is not linked may name freed ones */
        SAME("prev", node_name(ours, a->node.prev), node_name(theirs, b->node.prev));
        SAME("next", node_name(ours, a->node.next), node_name(theirs, b->node.next));
    }
    SAME("block_table is NULL", a->block_table == NULL, b->block_table == NULL);
    for (int i = 0; a->block_table != NULL && i < L1_PT_SIZE; i++) {
        const int *mine = a->block_table[i], *want = b->block_table[i];
        SAME("an L2 table is NULL", mine == NULL, want == NULL);
        for (int k = 0; mine != NULL && k < L2_PT_SIZE; k++) {
            SAME("a table entry", mine[k], want[k]);
        }
    }
}

static void compare(void) {
    SAME("live allocations", live, plain_live);
    for (int i = 0; i < ENGINES; i++) {
        const LLMEngine *a = ours->engine[i], *b = theirs->engine[i];
        SAME("total_local_blocks", a->total_local_blocks, b->total_local_blocks);
        SAME("free_local_blocks", a->free_local_blocks, b->free_local_blocks);
        SAME("first", node_name(ours, a->active_seqs.next), node_name(theirs, b->active_seqs.next));
        SAME("last", node_name(ours, a->active_seqs.prev), node_name(theirs, b->active_seqs.prev));
        for (int k = 0; k < BLOCKS; k++) {
            SAME("ref_count", a->ref_count[k], b->ref_count[k]);
        }
        for (int k = 0; k < BLOCKS * KV_PER_BLOCK; k++) {
            SAME("a record of the pool", ours->pool[i][k], theirs->pool[i][k]);
        }
    }
    for (int i = 0; i < made; i++) {
        if (ours->seqs[i] != NULL) {
            compare_sequence(i);
        }
    }
}

static int name_of(const struct world *w, const Sequence *s) { return (int)node_name(w, &s->node); }

static int existing(void) {
    int n = 0;
    for (int i = 0; i < made; i++) {
        n += theirs->seqs[i] != NULL;
    }
    return n;
}

/* A sequence that exists, linked or not; -1 if there is none. */
static int some(void) {
    int n = existing();
    int k = n == 0 ? -1 : next(n);
    for (int i = 0; n > 0 && i < made; i++) {
        if (theirs->seqs[i] != NULL && k-- == 0) {
            return i;
        }
    }
    return -1;
}

static int new_id(void) {
    switch (next(16)) {
    case 0:
        return ONE_OF(-1, 0, INT_MIN, INT_MAX);
    case 1:
    case 2:
        return next(60);
    }
    return any();
}

static int id(void) {
    int name = next(8) == 0 ? -1 : some();
    return name < 0 ? new_id() : theirs->seqs[name]->seq_id;
}

static int length(void) {
    switch (next(8)) {
    case 0:
        return ONE_OF(0, -5, 4096, 4097, INT_MAX, INT_MAX - 15, INT_MIN);
    case 1:
        return 1 + next(256) * 3;
    }
    return 1 + next(40);
}

/* One call in five loses one of its first allocations, in both worlds. */
static void begin_call(void) {
    plain_fail = fail = next(5) == 0 ? 1 + next(4) : 0;
    counting = 1;
}

static void end_call(void) { counting = fail = 0; }

static void note(int engine, Sequence *mine, Sequence *want) {
    plain_fail = 0;
    SAME("it returned NULL", mine == NULL, want == NULL);
    if (mine != NULL) {
        home[made] = engine;
        loose[made] = migrant[made] = 0;
        ours->seqs[made] = mine;
        theirs->seqs[made++] = want;
    }
}

static void make(int forks) {
    int engine = next(ENGINES), a = forks ? id() : new_id(), b = forks ? new_id() : length();
    if (made == MOST || existing() >= most) {
        return;
    }
    begin_call();
    Sequence *mine = (forks ? fork_sequence : create_sequence)(ours->engine[engine], a, b);
    end_call();
    note(engine, mine, (forks ? plain_fork : plain_create)(theirs->engine[engine], a, b));
}

static void append(int engine, int seq_id, int data) {
    begin_call();
    int mine = append_kv(ours->engine[engine], seq_id, data);
    end_call();
    SAME("append_kv", mine, plain_append(theirs->engine[engine], seq_id, data));
    plain_fail = 0;
}

static void release(void) {
    int engine = next(ENGINES), seq_id = id();
    const Sequence *s = plain_look(theirs->engine[engine], seq_id);
    int name = s == NULL ? -1 : name_of(theirs, s);
    begin_call();
    int mine = free_sequence(ours->engine[engine], seq_id);
    end_call();
    int want = plain_free(theirs->engine[engine], seq_id);
    plain_fail = 0;
    SAME("free_sequence", mine, want);
    if (want == 0) {
        ours->seqs[name] = theirs->seqs[name] = NULL;
        loose[name] = 0;
    }
}

/* The names of an engine's list, in order. */
static int listed(int engine, int *names) {
    int n = 0;
    const LLMEngine *e = theirs->engine[engine];
    for (const struct list_node *at = e->active_seqs.next; at != &e->active_seqs && at != NULL && n < MOST; at = at->next) {
        names[n++] = (int)node_name(theirs, at);
    }
    return n;
}

/* n appends, to sequences by name: they succeed as single ones would, or nothing is changed. */
static void several(int engine, const int *names, const int *data, int n, int is_run) {
    Sequence *seqs[MOST];
    int want = 0, done = 0;
    struct picture *before = __libc_malloc(sizeof *before), *after = __libc_malloc(sizeof *after);
    for (int i = 0; !is_run && i < n; i++) {
        seqs[i] = ours->seqs[names[i]];
    }
    look_at(before, ours->engine[engine], ours->pool[engine], BLOCKS * BLOCK_SIZE);
    begin_call();
    int failing = fail;
    int mine = is_run ? append_kv_run(ours->engine[engine], ours->seqs[names[0]], data, n)
                      : append_kv_batch(ours->engine[engine], seqs, data, n);
    end_call();
    look_at(after, ours->engine[engine], ours->pool[engine], BLOCKS * BLOCK_SIZE);
    if (mine != 0) { /* one by one on the library itself, until one is refused: that is what plain.h says, too */
        SAME("a refused batch leaves all as it was", same(before, after), 1);
        fail = failing;
    }
    while (done < n && want == 0) {
        int name = names[is_run ? 0 : done];
        want = plain_append_to(theirs->engine[engine], theirs->seqs[name], data[done]);
        if (mine != 0 && want == 0) {
            counting = 1;
            int single = append_kv_batch(ours->engine[engine], &ours->seqs[name], &data[done], 1);
            counting = 0;
            SAME("an append of a refused batch", single, 0);
        }
        done++;
    }
    end_call();
    plain_fail = 0;
    SAME("batch or run", mine, want);
    __libc_free(before);
    __libc_free(after);
}

static void batch(void) {
    int engine = next(ENGINES), list[MOST], names[MOST], data[MOST], n = 1 + next(30), linked = listed(engine, list);
    for (int i = 0; linked > 0 && i < n; i++) {
        names[i] = list[next(linked)];
        data[i] = any();
    }
    if (linked > 0) {
        several(engine, names, data, n, 0);
    }
}

static void run(void) {
    static int data[4097];
    int engine = next(ENGINES), list[MOST], linked = listed(engine, list), n = ONE_OF(1, 3, 16, 17, 40, 300, 4097);
    for (int i = 0; i < n; i++) {
        data[i] = i + 1;
    }
    if (linked > 0) {
        several(engine, &list[next(linked)], data, n, 1);
    }
}

#include "fuzz_writes.h"

static void operation(void) {
    switch (next(16)) {
    case 0:
    case 1:
        make(0);
        break;
    case 2:
    case 3:
        make(1);
        break;
    case 4:
    case 5: {
        int engine = next(ENGINES), seq_id = id(), times = next(3) == 0 ? next(40) : 1;
        for (int i = 0; i < times; i++) {
            append(engine, seq_id, any());
        }
        break;
    }
    case 6:
        batch();
        break;
    case 7:
        run();
        break;
    case 8:
    case 9:
        release();
        break;
    case 10:
        write_table();
        break;
    case 11:
        write_count();
        break;
    case 12:
        write_fields();
        break;
    default:
        write_list();
    }
}

/* One engine by llm_init, and one by hand, which the library never saw being made. */
static void begin(int way) {
    made = 0;
    live = plain_live = 2 * ENGINES;
    wild = way % 2 == 0 || getenv("LLM_MEMORY_STRICT") != NULL;
    most = way % 2 == 0 && getenv("LLM_MEMORY_STRICT") == NULL ? SHORT_LIST : MOST - 4;
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < ENGINES; i++) {
            int *pool = worlds[w].pool[i] = calloc(BLOCKS, BLOCK_SIZE);
            for (int k = 0; k < BLOCKS * KV_PER_BLOCK; k++) {
                pool[k] = -(k + 1) * 7919;
            }
            LLMEngine *e = worlds[w].engine[i] = w == 0 && i == 0 ? llm_init(pool, BLOCKS * BLOCK_SIZE) : malloc(sizeof *e);
            if (w != 0 || i != 0) {
                *e = (LLMEngine){pool, BLOCKS, BLOCKS, calloc(BLOCKS, sizeof(int)), {&e->active_seqs, &e->active_seqs}};
            }
        }
    }
}

/* Both engines are destroyed; nothing that was linked may be left. */
static void finish(void) {
    for (int i = 0; i < ENGINES; i++) {
        int list[MOST], n = listed(i, list);
        counting = 1;
        SAME("llm_destroy", llm_destroy(ours->engine[i]), 0);
        counting = 0;
        for (int k = 0; k < n; k++) {
            plain_dispose(theirs->seqs[list[k]]);
        }
        plain_live -= 2;
        free(theirs->engine[i]->ref_count);
        free(theirs->engine[i]);
    }
    SAME("allocations left by llm_destroy", live, plain_live);
    for (int i = 0; i < ENGINES; i++) {
        free(ours->pool[i]);
        free(theirs->pool[i]);
    }
}

static int read_all(void *to, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = read(0, (char *)to + done, size - done);
        if (n <= 0) {
            return 0;
        }
        done += (size_t)n;
    }
    return 1;
}

int main(void) {
    static unsigned char input[MOST_BYTES];
    uint32_t size, operations;
    while (read_all(&size, sizeof size) && size <= sizeof input && read_all(input, size)) {
        bytes = input;
        end = input + size;
        begin(next(2));
        for (operations = 0; bytes < end; operations++) {
            operation();
            compare();
        }
        finish();
        if (write(1, &operations, sizeof operations) != sizeof operations) {
            return 1;
        }
    }
    return 0;
}

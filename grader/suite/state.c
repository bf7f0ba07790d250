//go:build ignore

#define _DEFAULT_SOURCE
#include "state.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LONGEST_LIST = 100000 };

#define HERE __FILE__, __LINE__

/* Returns a byte of the pattern. Neighbouring blocks differ, so that a copy is noticed. */
unsigned char pool_pattern(size_t i) { return (unsigned char)(i * 37 + (i >> 8) * 11 + 5); }

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void pool_open(struct pool *pool, size_t size) {
    size_t page = page_size();
    size_t blocks = (size + BLOCK_SIZE - 1) / BLOCK_SIZE * BLOCK_SIZE;
    pool->size = size;
    pool->pages_size = (blocks + page - 1) / page * page;
    unsigned char *all = mmap(NULL, pool->pages_size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        check_fail(HERE, "the suite itself got no memory for a pool");
    }
    pool->pages = all + page;
    pool->at = pool->pages + pool->pages_size - blocks;
    pool_unlock(pool);
    for (size_t i = 0; i < pool->pages_size; i++) {
        pool->pages[i] = pool_pattern(i);
    }
}

void pool_close(struct pool *pool) {
    size_t page = page_size();
    munmap(pool->pages - page, pool->pages_size + 2 * page);
}

static void protect(struct pool *pool, int access) {
    if (mprotect(pool->pages, pool->pages_size, access) != 0) {
        check_fail(HERE, "the suite itself could not protect a pool");
    }
}

void pool_lock(struct pool *pool) { protect(pool, PROT_READ); }
void pool_unlock(struct pool *pool) { protect(pool, PROT_READ | PROT_WRITE); }

void world_open(struct world *world, int blocks) {
    pool_open(&world->pool, (size_t)blocks * BLOCK_SIZE);
    world->engine = llm_init(world->pool.at, world->pool.size);
    CHECK(world->engine != NULL);
}

void world_close(struct world *world) {
    CHECK_INT(llm_destroy(world->engine), 0);
    pool_close(&world->pool);
}

static Sequence *sequence_of(const struct list_node *node) {
    return (Sequence *)((char *)(uintptr_t)node - offsetof(Sequence, node));
}

static void *copy_of(const void *from, size_t size) {
    void *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL) {
        check_fail(HERE, "the suite itself got no memory");
    }
    return memcpy(copy, from, size);
}

/* Returns the number of sequences. Follows each link in both directions. */
static int walk(const LLMEngine *engine) {
    const struct list_node *head = &engine->active_seqs;
    const struct list_node *node = head;
    int n = -1;
    do {
        n++;
        if (node->next == NULL || node->prev == NULL) {
            check_fail(HERE, "active_seqs: node %d from the head has a NULL link", n);
        }
        if (node->next->prev != node) {
            check_fail(HERE, "active_seqs: next->prev of node %d from the head does not lead back to it", n);
        }
        if (n > LONGEST_LIST) {
            check_fail(HERE, "active_seqs: the list never comes back to its head");
        }
        node = node->next;
    } while (node != head);
    return n;
}

static void take_sequence(struct seq_state *to, Sequence *seq) {
    to->at = seq;
    to->seq_id = seq->seq_id;
    to->kv_count = seq->kv_count;
    to->block_table = seq->block_table;
    memset(to->entry, -1, sizeof to->entry);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        to->l2[i] = seq->block_table[i];
        if (to->l2[i] != NULL) {
            memcpy(to->entry[i], to->l2[i], sizeof to->entry[i]);
        }
    }
}

void state_take(struct state *state, const struct world *world) {
    const LLMEngine *engine = world->engine;
    state->pool_base_ptr = engine->pool_base_ptr;
    state->total_local_blocks = engine->total_local_blocks;
    state->free_local_blocks = engine->free_local_blocks;
    state->ref_count_at = engine->ref_count;
    state->ref_count = copy_of(engine->ref_count, (size_t)engine->total_local_blocks * sizeof(int));
    state->seqs = walk(engine);
    state->seq = malloc((size_t)(state->seqs + 1) * sizeof *state->seq); /* room for one to come */
    if (state->seq == NULL) {
        check_fail(HERE, "the suite itself got no memory");
    }
    const struct list_node *node = engine->active_seqs.next;
    for (int i = 0; i < state->seqs; i++, node = node->next) {
        take_sequence(&state->seq[i], sequence_of(node));
    }
    state->bytes = copy_of(world->pool.pages, world->pool.pages_size);
}

void state_drop(struct state *state) {
    free(state->ref_count);
    free(state->seq);
    free(state->bytes);
}

static void same_engine(const char *file, int line, const struct state *e, const struct state *a) {
    check_ptr(file, line, "engine->pool_base_ptr", a->pool_base_ptr, e->pool_base_ptr);
    check_int(file, line, "engine->total_local_blocks", a->total_local_blocks, e->total_local_blocks);
    check_int(file, line, "engine->free_local_blocks", a->free_local_blocks, e->free_local_blocks);
    check_ptr(file, line, "engine->ref_count", a->ref_count_at, e->ref_count_at);
    for (int b = 0; b < e->total_local_blocks; b++) {
        if (a->ref_count[b] != e->ref_count[b]) {
            check_fail(file, line, "ref_count[%d]: expected %d, got %d", b, e->ref_count[b], a->ref_count[b]);
        }
    }
}

static void same_table(const char *file, int line, int nth, const struct seq_state *e, const struct seq_state *a) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (a->l2[i] != e->l2[i]) {
            check_fail(file, line, "sequence %d of the list (id %d): block_table[%d]: expected %p, got %p", nth,
                       e->seq_id, i, (void *)e->l2[i], (void *)a->l2[i]);
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (a->entry[i][j] != e->entry[i][j]) {
                check_fail(file, line, "sequence %d of the list (id %d): block_table[%d][%d]: expected %d, got %d",
                           nth, e->seq_id, i, j, e->entry[i][j], a->entry[i][j]);
            }
        }
    }
}

static void same_sequences(const char *file, int line, const struct state *e, const struct state *a) {
    check_int(file, line, "number of sequences in the list", a->seqs, e->seqs);
    for (int i = 0; i < e->seqs; i++) {
        const struct seq_state *es = &e->seq[i], *as = &a->seq[i];
        if (as->seq_id != es->seq_id || as->at != es->at) {
            check_fail(file, line, "sequence %d of the list: expected id %d at %p, got id %d at %p", i, es->seq_id,
                       (void *)es->at, as->seq_id, (void *)as->at);
        }
        if (as->kv_count != es->kv_count) {
            check_fail(file, line, "sequence %d of the list (id %d): kv_count: expected %d, got %d", i, es->seq_id,
                       es->kv_count, as->kv_count);
        }
        check_ptr(file, line, "block_table", as->block_table, es->block_table);
        same_table(file, line, i, es, as);
    }
}

static void same_bytes(const char *file, int line, const struct state *e, const struct world *world) {
    const struct pool *pool = &world->pool;
    for (size_t i = 0; i < pool->pages_size; i++) {
        if (pool->pages[i] != e->bytes[i]) {
            long byte = (long)i - (long)(pool->at - pool->pages);
            check_fail(file, line, "pool byte %ld (block %ld, byte %ld of it): expected 0x%02x, got 0x%02x", byte,
                       byte / BLOCK_SIZE, byte % BLOCK_SIZE, e->bytes[i], pool->pages[i]);
        }
    }
}

void check_state(const char *file, int line, const struct state *expected, const struct world *world) {
    struct state actual;
    state_take(&actual, world);
    same_engine(file, line, expected, &actual);
    same_sequences(file, line, expected, &actual);
    same_bytes(file, line, expected, world);
    state_drop(&actual);
}

static void count_entries(const char *file, int line, const struct state *s, int *users) {
    for (int i = 0; i < s->seqs; i++) {
        const int *entry = s->seq[i].entry[0];
        for (int j = 0; j < MAX_LOGICAL_BLOCKS; j++) {
            if (entry[j] < -1 || entry[j] >= s->total_local_blocks) {
                check_fail(file, line,
                           "sequence %d of the list (id %d): block_table[%d][%d] is %d, which is no block", i,
                           s->seq[i].seq_id, j / L2_PT_SIZE, j % L2_PT_SIZE, entry[j]);
            }
            if (entry[j] != -1) {
                users[entry[j]]++;
            }
        }
    }
}

void check_conserved(const char *file, int line, const struct world *world) {
    struct state s;
    state_take(&s, world);
    int *users = calloc((size_t)s.total_local_blocks, sizeof *users);
    CHECK(users != NULL);
    count_entries(file, line, &s, users);
    int unused = 0;
    for (int b = 0; b < s.total_local_blocks; b++) {
        unused += s.ref_count[b] == 0;
        if (s.ref_count[b] != users[b]) {
            check_fail(file, line, "ref_count[%d] is %d, and %d table entries name the block", b, s.ref_count[b],
                       users[b]);
        }
    }
    check_int(file, line, "engine->free_local_blocks, beside the blocks with a ref_count of 0", s.free_local_blocks,
              unused);
    free(users);
    state_drop(&s);
}

size_t state_offset(const struct world *world, int block) {
    return (size_t)(world->pool.at - world->pool.pages) + (size_t)block * BLOCK_SIZE;
}

void state_write(struct state *state, const struct world *world, int block, int offset, int kv_data) {
    memcpy(state->bytes + state_offset(world, block) + (size_t)offset * KV_SIZE, &kv_data, KV_SIZE);
}

int record_at(const struct world *world, const Sequence *seq, int position) {
    int logical = position / KV_PER_BLOCK;
    const int *l2 = seq->block_table[logical / L2_PT_SIZE];
    if (l2 == NULL) {
        check_fail(HERE, "id %d, record %d: block_table[%d] is NULL", seq->seq_id, position, logical / L2_PT_SIZE);
    }
    int block = l2[logical % L2_PT_SIZE];
    if (block < 0 || block >= world->engine->total_local_blocks) {
        check_fail(HERE, "id %d, record %d: block_table[%d][%d] is %d", seq->seq_id, position, logical / L2_PT_SIZE,
                   logical % L2_PT_SIZE, block);
    }
    int value;
    memcpy(&value, world->pool.at + (size_t)block * BLOCK_SIZE + (size_t)(position % KV_PER_BLOCK) * KV_SIZE, KV_SIZE);
    return value;
}

int value_of(int seq_id, int position) {
    return (int)((unsigned)seq_id * 2654435761u + (unsigned)position * 40503u + 7u);
}

void append_many(struct world *world, Sequence *seq, int n) {
    int seq_id = seq->seq_id;
    int first = seq->kv_count;
    for (int i = 0; i < n; i++) {
        CHECK_INT(append_kv(world->engine, seq_id, value_of(seq_id, first + i)), 0);
    }
}

Sequence *nth_sequence(const LLMEngine *engine, int i) {
    const struct list_node *node = engine->active_seqs.next;
    while (node != &engine->active_seqs && i-- > 0) {
        node = node->next;
    }
    return node == &engine->active_seqs ? NULL : sequence_of(node);
}

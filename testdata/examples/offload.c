/*
 * offload - keeps blocks of keys and values in files with libllm_cache. A second run loads what the
 * first has computed. As in serve.c there is no model, but a number for every position, which
 * depends on all tokens up to it: in every step each scheduled request must find exactly its own
 * numbers through its block table, whether they were computed, hit or loaded.
 *
 *   cc -std=c11 offload.c -lllm_cache -o offload
 *   ./offload FOLDER
 *
 * Several processes can share the folder. One that is killed leaves at most a file partial-*.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm_cache.h"

enum {
    FORMAT = 1, /* of a file: another one if the model, the size of a block or struct file changes */
    REQUESTS = 48,
    SYSTEM_PROMPTS = 5,
    BLOCKS = 40, /* so few that requests lose theirs now and then */
    BLOCK_SIZE = 16,
    MAX_SEQS = 8,
    MAX_TOKENS = 128,
    MODEL_LEN = 256,
    TABLE = MODEL_LEN / BLOCK_SIZE
};

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "line %d: not so: %s\n%s\n", __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* What the worker knows of a request. Its user_data is its index. */
struct request {
    int n;
    int32_t tokens[MODEL_LEN], table[TABLE];
};

/* A file has the numbers of a block, and all tokens that they depend on: up to the last of the block. */
struct file {
    uint64_t sum; /* of all that follows: against damage, not against forgery */
    uint32_t format, tokens;
    int32_t prefix[MODEL_LEN];
    uint64_t numbers[BLOCK_SIZE];
};

static struct request requests[REQUESTS];
static uint64_t memory[BLOCKS][BLOCK_SIZE]; /* the keys and values */
static long computed, loaded, written, removed; /* tokens and files */

/* FNV-1a. */
static uint64_t hash(const void *bytes, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    }
    return h;
}

static uint64_t sum(const struct file *f) { return hash(&f->format, sizeof *f - sizeof f->sum); }

/* The file of block k of a request, without numbers, and its name, which another prefix can have, too. */
static struct file describe(const struct request *r, int k, char name[20]) {
    struct file f = {.format = FORMAT, .tokens = (uint32_t)(k + 1) * BLOCK_SIZE};
    memcpy(f.prefix, r->tokens, f.tokens * sizeof f.prefix[0]);
    snprintf(name, 20, "%016llx.kv", (unsigned long long)hash(f.prefix, sizeof f.prefix));
    return f;
}

/* How many tokens the files have, from the first one on. The last one is computed in any case. */
static int32_t find_files(const struct request *r) {
    char name[20];
    int k = 0;
    for (; k < (r->n - 1) / BLOCK_SIZE; k++) {
        describe(r, k, name);
        if (access(name, R_OK) != 0) {
            break;
        }
    }
    return k * BLOCK_SIZE;
}

/* Reads block k of a request, and returns 1 if it came whole. A damaged file is removed. */
static int read_block(const struct request *r, int k, uint64_t *numbers) {
    char name[20];
    struct file f, want = describe(r, k, name);
    FILE *in = fopen(name, "rb");
    if (in == NULL) { /* removed meanwhile */
        return 0;
    }
    int whole = fread(&f, sizeof f, 1, in) == 1 && fgetc(in) == EOF && f.format == FORMAT && f.sum == sum(&f);
    if (!whole && !ferror(in)) {
        removed += remove(name) == 0;
    }
    fclose(in);
    if (!whole || f.tokens != want.tokens || memcmp(f.prefix, want.prefix, sizeof f.prefix) != 0) {
        return 0; /* the file of another prefix stays */
    }
    memcpy(numbers, f.numbers, sizeof f.numbers);
    return 1;
}

/* Writes block k of a request under another name and renames it, so that readers find whole files. */
static void write_block(const struct request *r, int k) {
    char name[20], partial[] = "partial-XXXXXX";
    struct file f = describe(r, k, name);
    if (access(name, F_OK) == 0) {
        return;
    }
    memcpy(f.numbers, memory[r->table[k]], sizeof f.numbers);
    f.sum = sum(&f);
    int fd = mkstemp(partial);
    int whole = fd >= 0 && write(fd, &f, sizeof f) == (ssize_t)sizeof f;
    whole = fd >= 0 && close(fd) == 0 && whole && rename(partial, name) == 0;
    if (!whole) { /* the next run computes it */
        fprintf(stderr, "%s was not written\n", name);
        remove(partial);
    }
    written += whole;
}

/* Request i: a system prompt that others have too, and a tail of its own. */
static void add(llm_cache cache, int i) {
    struct request *r = &requests[i];
    r->n = 40 + i * 7 % 60;
    for (int p = 0; p < r->n; p++) {
        r->tokens[p] = p < 36 ? 1000 * (i % SYSTEM_PROMPTS) + p : 10000 + 100 * i + p;
    }
    llm_cache_spec spec = {
        .size = sizeof spec, .tokens = {r->tokens, r->n}, .max_tokens = 10 + i * 5 % 40, .arrival = i,
        .user_data = (uint64_t)i, .flags = LLM_CACHE_LOAD_ASYNC, .external = find_files(r),
    };
    llm_request id;
    CHECK(llm_cache_add(cache, &spec, &id) == LLM_CACHE_OK);
}

/* Loads blocks of a request, which waits meanwhile. An engine does this on other threads, while steps run. */
static void load(llm_cache cache, const llm_cache_load *l) {
    int32_t blocks[TABLE];
    llm_cache_i32s table = {.at = blocks, .cap = TABLE};
    CHECK(llm_cache_table(cache, l->id, 0, &table) == LLM_CACHE_OK);
    int k = l->computed / BLOCK_SIZE, end = (l->computed + l->external) / BLOCK_SIZE;
    while (k < end && read_block(&requests[l->user_data], k, memory[blocks[k]])) {
        loaded += BLOCK_SIZE;
        k++;
    }
    if (k < end) { /* what did not come is computed */
        llm_request id;
        llm_cache_load_failure failure = {.size = sizeof failure, .affected = {.at = &id, .cap = 1}};
        CHECK(llm_cache_load_failed(cache, blocks + k, end - k, &failure) == LLM_CACHE_OK);
        CHECK(failure.affected.len == 1 && id == l->id);
    }
    CHECK(llm_cache_received(cache, &l->id, 1) == LLM_CACHE_OK);
}

/* The number of a position, from that of the position before. */
static uint64_t next(uint64_t before, int32_t token) {
    return (before ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u + 1;
}

/* Computes the rows, checks what they read, and returns the number of sampled tokens. */
static int64_t run_model(const llm_cache_step *step, int32_t *counts, int32_t *sampled) {
    int64_t block = 0, slot = 0, n = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        struct request *r = &requests[row->user_data];
        for (int64_t entry = step->block_starts.at[i]; block < step->block_ends.at[i]; block++) {
            r->table[entry++] = step->blocks.at[block];
        }
        uint64_t value = 0;
        for (int p = 0; p < row->computed + row->tokens; p++) {
            value = next(value, r->tokens[p]);
            if (p >= row->computed) {
                memory[step->slots.at[slot] / BLOCK_SIZE][step->slots.at[slot] % BLOCK_SIZE] = value;
                slot++;
            }
            CHECK(memory[r->table[p / BLOCK_SIZE]][p % BLOCK_SIZE] == value);
        }
        counts[i] = row->samples;
        if (row->samples) {
            sampled[n++] = (int32_t)(value >> 40) % 5000;
        }
    }
    computed += (long)slot;
    return n;
}

/* Writes the blocks that became full. */
static void store(const llm_cache_step *step) {
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        for (int k = row->computed / BLOCK_SIZE; k < (row->computed + row->tokens) / BLOCK_SIZE; k++) {
            write_block(&requests[row->user_data], k);
        }
    }
}

#define ARRAY(a) {.at = (a), .cap = sizeof(a) / sizeof(a)[0]}

int main(int argc, char **argv) {
    if (argc != 2 || (mkdir(argv[1], 0700) != 0 && errno != EEXIST) || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: offload FOLDER, which is made if it is not there\n");
        return 2;
    }
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = BLOCK_SIZE, .max_num_seqs = MAX_SEQS,
        .max_num_batched_tokens = MAX_TOKENS, .max_model_len = MODEL_LEN, .flags = LLM_CACHE_KV_CONSUMER,
    };
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == LLM_CACHE_OK);

    /* These arrays suffice for any step here, and the others stay empty. Those of serve.c grow. */
    llm_cache_row rows[MAX_SEQS];
    int32_t blocks[MAX_SEQS * TABLE], common[1], counts[MAX_SEQS], sampled[MAX_SEQS], kept[MAX_SEQS];
    int64_t starts[MAX_SEQS], ends[MAX_SEQS], slots[MAX_TOKENS];
    llm_request preempted[REQUESTS], finished[REQUESTS];
    llm_cache_load loads[REQUESTS];
    llm_cache_done done[MAX_SEQS];
    llm_cache_step step = {
        .size = sizeof step, .rows = ARRAY(rows), .blocks = ARRAY(blocks), .block_starts = ARRAY(starts),
        .block_ends = ARRAY(ends), .slots = ARRAY(slots), .common = ARRAY(common), .preempted = ARRAY(preempted),
        .finished = ARRAY(finished), .loads = ARRAY(loads),
    };
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = ARRAY(kept), .done = ARRAY(done)};
    uint64_t answers = 0;
    for (int arrived = 0, over = 0; over < REQUESTS;) {
        if (arrived < REQUESTS) { /* one arrives in each step */
            add(cache, arrived++);
        }
        CHECK(llm_cache_schedule(cache, &step) == LLM_CACHE_OK);
        CHECK(step.rows.len > 0 || step.loads.len > 0);
        if (step.rows.len > 0) {
            int64_t n = run_model(&step, counts, sampled);
            store(&step); /* before the update frees the blocks of requests that have finished */
            CHECK(llm_cache_update(cache, counts, step.rows.len, sampled, n, &outcome) == LLM_CACHE_OK);
            for (int64_t i = 0, at = 0; i < step.rows.len; i++) {
                struct request *r = &requests[rows[i].user_data];
                for (int32_t k = 0; k < kept[i]; k++) {
                    r->tokens[r->n++] = sampled[at++];
                }
            }
            for (int64_t i = 0; i < outcome.done.len; i++, over++) {
                const struct request *r = &requests[done[i].user_data];
                answers += hash(r->tokens, sizeof r->tokens);
            }
        }
        for (int64_t i = 0; i < step.loads.len; i++) {
            load(cache, &loads[i]);
        }
    }
    llm_cache_stats stats = {.size = sizeof stats};
    CHECK(llm_cache_statistics(cache, &stats) == LLM_CACHE_OK);
    CHECK(stats.running == 0 && stats.waiting == 0 && stats.free_blocks == stats.blocks);
    printf("%d requests, answers %016llx: %ld tokens computed, %ld loaded; %ld files written, %ld removed\n", REQUESTS,
           (unsigned long long)answers, computed, loaded, written, removed);
    CHECK(llm_cache_close(cache) == LLM_CACHE_OK);
    return 0;
}

/*
 * flash_attention - decoding by libllm_cache beside ggml's GGML_OP_FLASH_ATTN_EXT on
 * the CPU, by turns in one process: one new token, 32 query heads on 8 of 128
 * elements, keys and values in f16. ggml reads contiguous memory, in both layouts
 * that it is used with; libllm_cache reads blocks of 16 tokens at random places of
 * 1 GiB. flash_attention.sh builds and runs it.
 *
 *   flash_attention THREADS CONTEXT
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ggml-cpu.h"
#include "ggml.h"
#include "llm_attention.h"

enum { HEADS = 32, KV_HEADS = 8, SIZE = 128, WIDTH = KV_HEADS * SIZE, BLOCK = 16, ROUNDS = 15, SOME = 1024, WAYS = 3 };
static const size_t MEMORY = (size_t)1 << 30; /* of keys and values, for each way */

static const char *names[WAYS] = {"llm_attention_forward, blocks scattered", "ggml, [head, token, element]",
    "ggml, [token, head, element]"};

static void must(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "flash_attention: %s failed: %s\n", what, llm_cache_error_detail());
        exit(1);
    }
}

static void *pages(size_t bytes) {
    char *at = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap");
    at += -(uintptr_t)at & ((2 << 20) - 1);
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x) {
    qsort(x, ROUNDS, sizeof *x, by_value);
    return x[ROUNDS / 2];
}

static uint32_t seed = 1;
static uint32_t any(void) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

/* Keys and values of SOME tokens, which repeat: [token, head, element]. */
static ggml_fp16_t keys[SOME * WIDTH], values[SOME * WIDTH];
static float query[HEADS * SIZE], ours[HEADS * SIZE];

static int threads, context, seqs;
static double seconds[WAYS][ROUNDS];

/* ---- libllm_cache ---- */

static llm_attention_cache cache = {.size = sizeof cache, .dtype = LLM_F16, .block_size = BLOCK,
    .kv_heads = KV_HEADS, .head_size = SIZE};
static int32_t *table;

static void prepare(void) {
    cache.blocks = seqs * context / BLOCK;
    must(llm_attention_describe(&cache, pages(MEMORY), (int64_t)MEMORY) == 0, "llm_attention_describe");
    table = malloc((size_t)cache.blocks * sizeof *table);
    must(table != NULL, "malloc");
    for (int32_t i = 0; i < cache.blocks; i++) {
        int32_t j = (int32_t)(any() % (uint32_t)(i + 1));
        table[i] = table[j];
        table[j] = i;
    }
    llm_tensor k = {.at = keys, .rows = SOME, .stride = WIDTH, .dtype = LLM_F16};
    llm_tensor v = {.at = values, .rows = SOME, .stride = WIDTH, .dtype = LLM_F16};
    for (int at = 0; at < seqs * context; at += SOME) {
        static int64_t slots[SOME];
        for (int i = 0; i < SOME; i++) {
            slots[i] = (int64_t)table[(at + i) / BLOCK] * BLOCK + i % BLOCK;
        }
        must(llm_attention_write(&cache, &k, &v, slots, SOME, NULL, threads) == 0, "llm_attention_write");
    }
}

static void attend(int seq) {
    int32_t start[] = {0, 1}, lens[] = {context};
    llm_attention_batch batch = {
        .size = sizeof batch, .heads = HEADS, .query_start = start, .seq_lens = lens, .seqs = 1,
        .table_stride = context / BLOCK,
        .queries = {.at = query, .rows = 1, .stride = HEADS * SIZE},
        .outputs = {.at = ours, .rows = 1, .stride = HEADS * SIZE},
        .block_tables = table + (size_t)seq * (size_t)(context / BLOCK)};
    must(llm_attention_forward(&cache, &batch, threads) == 0, "llm_attention_forward");
}

/* ---- ggml ---- */

struct graph {
    struct ggml_cgraph *graph;
    struct ggml_cplan plan;
    float *out;
};
static struct graph *graphs[WAYS];
static struct ggml_threadpool *pool;

static void fill(char *to, const ggml_fp16_t *from, size_t token, size_t head) {
    for (int t = 0; t < context; t++) {
        for (int h = 0; h < KV_HEADS; h++) {
            memcpy(to + (size_t)t * token + (size_t)h * head, from + (t % SOME) * WIDTH + h * SIZE,
                SIZE * sizeof *from);
        }
    }
}

/* A graph of one operation for each sequence; by_head is the order of memory. */
static struct graph *build(int by_head) {
    struct graph *list = calloc((size_t)seqs, sizeof *list);
    size_t bytes = (size_t)context * WIDTH * sizeof(ggml_fp16_t), row = SIZE * sizeof(ggml_fp16_t);
    size_t token = by_head ? row : KV_HEADS * row, head = by_head ? row * (size_t)context : row;
    char *memory = pages(2 * bytes * (size_t)seqs);
    must(list != NULL, "calloc");
    for (int i = 0; i < seqs; i++) {
        struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
        struct ggml_context *c = ggml_init(params);
        struct ggml_tensor *q = ggml_new_tensor_3d(c, GGML_TYPE_F32, SIZE, 1, HEADS);
        struct ggml_tensor *kv[2];
        for (int j = 0; j < 2; j++) {
            kv[j] = ggml_new_tensor_3d(c, GGML_TYPE_F16, SIZE, context, KV_HEADS);
            kv[j]->nb[1] = token, kv[j]->nb[2] = head, kv[j]->nb[3] = bytes;
            kv[j]->data = memory + (size_t)(2 * i + j) * bytes;
            fill(kv[j]->data, j ? values : keys, token, head);
        }
        struct ggml_tensor *out = ggml_flash_attn_ext(c, q, kv[0], kv[1], NULL, 1 / sqrtf(SIZE), 0, 0);
        q->data = query;
        out->data = list[i].out = calloc(HEADS * SIZE, sizeof(float));
        list[i].graph = ggml_new_graph(c);
        ggml_build_forward_expand(list[i].graph, out);
        list[i].plan = ggml_graph_plan(list[i].graph, threads, pool);
        list[i].plan.work_data = malloc(list[i].plan.work_size + 64);
        must(list[i].out != NULL && list[i].plan.work_data != NULL, "malloc");
    }
    return list;
}

/* ---- by turns ---- */

static void run(int way, int seq) {
    if (way == 0) {
        attend(seq);
        return;
    }
    must(ggml_graph_compute(graphs[way][seq].graph, &graphs[way][seq].plan) == GGML_STATUS_SUCCESS,
        "ggml_graph_compute");
}

/* Both compute the same. ggml sums values in f16, which is less exact the longer the context is. */
static void compare(int way) {
    float bound = 0.01f + 1e-5f * (float)context;
    run(0, 0);
    run(way, 0);
    for (int i = 0; i < HEADS * SIZE; i++) {
        if (!(fabsf(ours[i] - graphs[way][0].out[i]) < bound)) {
            fprintf(stderr, "flash_attention: element %d is %g and %g\n", i, (double)ours[i],
                (double)graphs[way][0].out[i]);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    threads = argc == 3 ? atoi(argv[1]) : 0;
    context = argc == 3 ? atoi(argv[2]) : 0;
    if (threads < 1 || context < SOME || context % SOME != 0 || context > 1 << 16) {
        fprintf(stderr, "usage: flash_attention THREADS CONTEXT (a multiple of %d)\n", SOME);
        return 2;
    }
    size_t bytes = 2 * (size_t)context * WIDTH * sizeof(ggml_fp16_t);
    seqs = (int)(MEMORY / bytes);
    for (int i = 0; i < SOME * WIDTH; i++) {
        keys[i] = ggml_fp32_to_fp16((float)(any() % 2001) / 1000 - 1);
        values[i] = ggml_fp32_to_fp16((float)(any() % 2001) / 1000 - 1);
    }
    for (int i = 0; i < HEADS * SIZE; i++) {
        query[i] = (float)(any() % 4001) / 1000 - 2;
    }
    ggml_cpu_init();
    struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    pool = ggml_threadpool_new(&params);
    prepare();
    for (int way = 1; way < WAYS; way++) {
        graphs[way] = build(way == 1);
        compare(way);
    }
    for (int round = 0, next = 0; round < ROUNDS; round++) {
        int calls = (1 << 26) / (int)bytes + 1; /* at least 64 MB for each */
        for (int way = 0; way < WAYS; way++) {
            double start = now();
            for (int i = 0; i < calls; i++) {
                run(way, (next + i) % seqs);
            }
            seconds[way][round] = (now() - start) / calls;
        }
        next += calls;
    }
    for (int way = 0; way < WAYS; way++) {
        double times[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            times[i] = seconds[way][i] / seconds[0][i];
        }
        double ratio = median(times);
        printf("%-42s context %6d, %d threads %8.1f GB/s  %5.2f times our time\n", names[way], context, threads,
            1e-9 * (double)bytes / median(seconds[way]), ratio);
    }
    return 0;
}

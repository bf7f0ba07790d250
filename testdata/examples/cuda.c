/*
 * cuda - serves 12 requests with libllm_cache on a GPU: its scheduler decides which tokens are
 * computed in which blocks, its kernels write keys and values there and attend. The model is the one of
 * attention.c: two layers built by hand, which answer with what stood after a token earlier in the prompt.
 * What is not attention runs on the CPU, to keep the example short.
 *
 *   cc -std=c11 cuda.c -lllm_cache -ldl -o cuda
 *   ./cuda [path of NVIDIA's driver [e4m3 | e5m2]]      the last one: the type of keys and values, F16 unless it is given
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_cuda.h"

enum {
    REQUESTS = 12,
    WORDS = 128, /* tokens of the vocabulary, and the size of the one head */
    BLOCKS = 13, /* so few that requests are preempted */
    BLOCK_SIZE = 16,
    MAX_SEQS = 4,
    MAX_TOKENS = 64,
    MODEL_LEN = 128,
    TABLE = MODEL_LEN / BLOCK_SIZE,
    LAYERS = 2,
    LAYER_ELEMENTS = BLOCKS * BLOCK_SIZE * WORDS,
    MAX_ENTRIES = 4096
};

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n%s\n", __FILE__, __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

/* The driver, whose header comes with the CUDA toolkit, which is not needed here. */
static void *driver;
static int call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d) {
    int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t);
    void *found = dlsym(driver, name);
    CHECK(found != NULL);
    memcpy(&function, &found, sizeof function);
    return function(a, b, c, d);
}
#define CU(name, a, b, c, d) CHECK(call(name, (uintptr_t)(a), (uintptr_t)(b), (uintptr_t)(c), (uintptr_t)(d)) == 0)

static llm_cuda_stream stream;

static uint64_t gpu_memory(size_t bytes) {
    uint64_t p = 0;
    CU("cuMemAlloc_v2", &p, bytes, 0, 0);
    return p;
}
static void upload(uint64_t to, const void *from, size_t bytes) {
    CU("cuMemcpyHtoDAsync_v2", to, from, bytes, stream);
}
static void download(void *to, uint64_t from, size_t bytes) {
    CU("cuMemcpyDtoHAsync_v2", to, from, bytes, stream);
    CU("cuStreamSynchronize", stream, 0, 0, 0);
}

static uint16_t to_half(float x) { /* of magnitudes below 65504; those below 2^-14 become 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    return (uint16_t)(magnitude < 0x38800000 ? sign : sign | (magnitude - 0x38000000 + 0x1000) >> 13);
}
static float from_half(uint16_t h) { /* likewise */
    uint32_t bits = (uint32_t)(h & 0x8000) << 16 | (h & 0x7c00 ? ((uint32_t)(h & 0x7fff) << 13) + 0x38000000 : 0);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct request {
    llm_request id;
    int n, finished;
    int32_t tokens[MODEL_LEN];
};
static struct request requests[REQUESTS];

static struct request *find(llm_request id) {
    int i = 0;
    while (requests[i].id != id) {
        CHECK(++i < REQUESTS);
    }
    return &requests[i];
}

static uint32_t seed = 1;
static int any(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 16) % n;
}

static float codes[MODEL_LEN][WORDS]; /* of each position: 128 times plus or minus 1/sqrt(128) */

/* Adds a request. Its prompt is different tokens, the first 32 the same as in all prompts, and then one of them again. */
static void add(llm_cache cache, struct request *r) {
    int n = 40 + any(40);
    for (int i = 0; i < WORDS; i++) {
        r->tokens[i] = (i * 37 + 5) % WORDS;
    }
    for (int i = 32; i < WORDS; i++) {
        int j = i + any(WORDS - i);
        int32_t t = r->tokens[i];
        r->tokens[i] = r->tokens[j], r->tokens[j] = t;
    }
    r->tokens[n] = r->tokens[any(n - 1)];
    r->n = n + 1;
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {r->tokens, r->n}, .max_tokens = 3 + any(12)};
    CHECK(llm_cache_add(cache, &spec, &r->id) == LLM_CACHE_OK);
}

/* The GPU's memory, and its contents as the host writes them. */
static llm_cuda gpu;
static llm_cuda_attention attention;
static llm_cuda_plan plan;
static llm_cuda_batch batch;
static uint64_t keys_at, values_at, slots_at, pairs_at, part_bytes;
static llm_cuda_cache layers[LAYERS];
static llm_cuda_blocks blocks;
static int32_t entries[MAX_ENTRIES], tables[MAX_SEQS][TABLE], starts[MAX_SEQS + 1], lengths[MAX_SEQS];
static float q[MAX_TOKENS][WORDS], k[MAX_TOKENS][WORDS], v[MAX_TOKENS][WORDS], out[MAX_TOKENS][WORDS];

static void prepare(const char *path, int32_t cache_dtype) {
    const int layer_bytes = LAYER_ELEMENTS * (cache_dtype == 0 ? 2 : 1);
    CHECK((driver = dlopen(path, RTLD_NOW)) != NULL);
    int device;
    void *context;
    CU("cuInit", 0, 0, 0, 0);
    CU("cuDeviceGet", &device, 0, 0, 0);
    CU("cuDevicePrimaryCtxRetain", &context, device, 0, 0);
    CU("cuCtxSetCurrent", context, 0, 0, 0);
    CU("cuStreamCreate", &stream, 1, 0, 0);
    CHECK(llm_cuda_open(path, &gpu) == LLM_CACHE_OK);
    llm_cuda_attention_config config = {.size = sizeof config, .dtype = LLM_F16, .heads = 1, .block_size = BLOCK_SIZE,
                                        .kv_heads = 1, .head_size = WORDS, .scale = 1, .cache_dtype = cache_dtype};
    CHECK(llm_cuda_attention_open(gpu, &config, &attention) == LLM_CACHE_OK);
    uint64_t arrays[2 * LAYERS];
    for (int i = 0; i < 2 * LAYERS; i++) {
        arrays[i] = gpu_memory((size_t)layer_bytes);
    }
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (llm_cuda_cache){.size = sizeof layers[i], .block_size = BLOCK_SIZE, .kv_heads = 1, .head_size = WORDS,
                                     .key = arrays[2 * i], .value = arrays[2 * i + 1], .dtype = LLM_F16, .cache_dtype = cache_dtype};
    }
    blocks = (llm_cuda_blocks){.size = sizeof blocks, .arrays = 2 * LAYERS, .at = gpu_memory(sizeof arrays), .block_bytes = layer_bytes / BLOCKS};
    upload(blocks.at, arrays, sizeof arrays);
    size_t rows = MAX_TOKENS * WORDS * sizeof(uint16_t);
    keys_at = gpu_memory(rows), values_at = gpu_memory(rows), slots_at = gpu_memory(MAX_TOKENS * 8), pairs_at = gpu_memory(sizeof(llm_kvstore_pair));
    plan = (llm_cuda_plan){.size = sizeof plan, .entries = {.at = entries, .cap = MAX_ENTRIES}};
    batch = (llm_cuda_batch){.size = sizeof batch, .queries = {gpu_memory(rows), WORDS}, .outputs = {gpu_memory(rows), WORDS},
                             .block_tables = gpu_memory(sizeof tables), .table_stride = TABLE, .query_start = gpu_memory(sizeof starts),
                             .seq_lens = gpu_memory(sizeof lengths), .entries = gpu_memory(sizeof entries)};
}

/* Makes the step's copies, plans it, and gives the GPU what its rows need to know. */
static void begin(llm_cache cache, const llm_cache_step *step) {
    for (int64_t i = 0; i < step->copies.len; i++) { /* one after the other: a copy may read what one before it wrote */
        llm_kvstore_pair pair = {step->copies.at[i].src, step->copies.at[i].dst};
        upload(pairs_at, &pair, sizeof pair);
        CHECK(llm_cuda_copy(gpu, &blocks, pairs_at, 1, stream) == LLM_CACHE_OK);
    }
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        starts[i + 1] = starts[i] + row->tokens, lengths[i] = row->computed + row->tokens;
        llm_cache_i32s table = {.at = tables[i], .cap = TABLE};
        CHECK(llm_cache_table(cache, row->id, 0, &table) == LLM_CACHE_OK);
    }
    CHECK(llm_cuda_attention_plan(attention, starts, lengths, step->rows.len, &plan) == LLM_CACHE_OK);
    if ((uint64_t)plan.part_bytes > part_bytes) {
        batch.parts = gpu_memory(part_bytes = (uint64_t)plan.part_bytes);
    }
    upload(batch.block_tables, tables, sizeof tables);
    upload(batch.query_start, starts, sizeof starts);
    upload(batch.seq_lens, lengths, sizeof lengths);
    upload(batch.entries, entries, (size_t)plan.entries.len * sizeof *entries);
    upload(slots_at, step->slots.at, (size_t)step->tokens * sizeof *step->slots.at);
}

static void upload_rows(uint64_t to, float rows[][WORDS], int n) {
    static uint16_t halves[MAX_TOKENS * WORDS];
    for (int i = 0; i < n * WORDS; i++) {
        halves[i] = to_half(rows[i / WORDS][i % WORDS]);
    }
    upload(to, halves, (size_t)n * WORDS * 2);
    CU("cuStreamSynchronize", stream, 0, 0, 0); /* halves is used again */
}

static void layer(int i, int n) {
    static uint16_t halves[MAX_TOKENS * WORDS];
    upload_rows(batch.queries.at, q, n), upload_rows(keys_at, k, n), upload_rows(values_at, v, n);
    llm_cuda_tensor keys = {keys_at, WORDS}, values = {values_at, WORDS};
    CHECK(llm_cuda_write(gpu, &layers[i], &keys, &values, slots_at, n, stream) == LLM_CACHE_OK);
    batch.key = layers[i].key, batch.value = layers[i].value;
    CHECK(llm_cuda_attention_run(attention, &batch, stream) == LLM_CACHE_OK);
    download(halves, batch.outputs.at, (size_t)n * WORDS * 2);
    for (int j = 0; j < n * WORDS; j++) {
        out[j / WORDS][j % WORDS] = from_half(halves[j]);
    }
}

/* Computes the rows of a step, and returns the number of sampled tokens. */
static int64_t run_model(const llm_cache_step *step, int32_t *counts, int32_t *sampled) {
    int n = 0;
    memset(q, 0, sizeof q), memset(v, 0, sizeof v);
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        for (int p = row->computed; p < row->computed + row->tokens; p++, n++) {
            for (int d = 0; d < WORDS; d++) { /* the query finds the position before */
                q[n][d] = p > 0 ? 100 * codes[p - 1][d] : 0;
                k[n][d] = codes[p][d];
            }
            v[n][find(row->id)->tokens[p]] = 1;
        }
    }
    layer(0, n);
    n = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        for (int p = step->rows.at[i].computed, left = step->rows.at[i].tokens; left > 0; p++, left--, n++) {
            for (int d = 0; d < WORDS; d++) {
                k[n][d] = p > 0 ? out[n][d] : 0; /* the token at the position before */
                q[n][d] = 40 * v[n][d];          /* finds where that is this token */
            }
        }
    }
    layer(1, n);
    int64_t said = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        counts[i] = row->computed + row->tokens == find(row->id)->n;
        if (counts[i]) {
            const float *last = out[starts[i + 1] - 1];
            int best = 0;
            for (int d = 1; d < WORDS; d++) {
                best = last[d] > last[best] ? d : best;
            }
            sampled[said++] = best;
        }
    }
    return said;
}

/* Each token of an answer must be what followed the token before it. */
static void take(const llm_cache_step *step, const int32_t *counts, const int32_t *sampled, const llm_cache_outcome *outcome) {
    for (int64_t i = 0; i < step->rows.len; i++) {
        struct request *r = find(step->rows.at[i].id);
        for (int32_t c = 0; c < counts[i]; c++) {
            int p = 0;
            while (r->tokens[p] != r->tokens[r->n - 1]) {
                p++;
            }
            CHECK(r->tokens[p + 1] == *sampled);
            r->tokens[r->n++] = *sampled++;
        }
    }
    for (int64_t i = 0; i < outcome->done.len; i++) {
        find(outcome->done.at[i].id)->finished = 1;
    }
}

int main(int argc, char **argv) {
    for (int i = 0; i < MODEL_LEN * WORDS; i++) {
        codes[i / WORDS][i % WORDS] = any(2) ? 0.0883883f : -0.0883883f;
    }
    const char *type = argc > 2 ? argv[2] : "";
    prepare(argc > 1 ? argv[1] : "libcuda.so.1", strcmp(type, "e4m3") == 0 ? LLM_E4M3 : strcmp(type, "e5m2") == 0 ? LLM_E5M2 : 0);
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = BLOCK_SIZE,
        .max_num_seqs = MAX_SEQS, .max_num_batched_tokens = MAX_TOKENS, .max_model_len = MODEL_LEN,
    };
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == LLM_CACHE_OK);

    llm_cache_row rows[MAX_SEQS];
    llm_cache_copy copies[MAX_SEQS];
    llm_request preempted[REQUESTS], finished[REQUESTS];
    int32_t ids[MAX_SEQS * TABLE], drafts[1], common[1], counts[MAX_SEQS], sampled[MAX_SEQS], kept[MAX_SEQS];
    int64_t block_starts[MAX_SEQS], block_ends[MAX_SEQS], slots[MAX_TOKENS];
    llm_cache_done done[MAX_SEQS];
    llm_cache_step step = {
        .size = sizeof step, .rows = {.at = rows, .cap = MAX_SEQS}, .drafts = {.at = drafts, .cap = 1},
        .blocks = {.at = ids, .cap = sizeof ids / sizeof *ids}, .block_starts = {.at = block_starts, .cap = MAX_SEQS},
        .block_ends = {.at = block_ends, .cap = MAX_SEQS}, .slots = {.at = slots, .cap = MAX_TOKENS}, .copies = {.at = copies, .cap = MAX_SEQS},
        .common = {.at = common, .cap = 1}, .preempted = {.at = preempted, .cap = REQUESTS}, .finished = {.at = finished, .cap = REQUESTS},
    };
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = {.at = kept, .cap = MAX_SEQS}, .done = {.at = done, .cap = MAX_SEQS}};
    int64_t recalled = 0;
    for (int i = 0; i < REQUESTS; i++) {
        add(cache, &requests[i]);
    }
    for (;;) {
        CHECK(llm_cache_schedule(cache, &step) == LLM_CACHE_OK);
        if (step.rows.len == 0) {
            break;
        }
        begin(cache, &step);
        int64_t n = run_model(&step, counts, sampled);
        CHECK(llm_cache_update(cache, counts, step.rows.len, sampled, n, &outcome) == LLM_CACHE_OK);
        take(&step, counts, sampled, &outcome);
        recalled += n;
    }
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(requests[i].finished);
    }
    llm_cache_stats stats = {.size = sizeof stats};
    CHECK(llm_cache_statistics(cache, &stats) == LLM_CACHE_OK);
    printf("%d requests: %lld tokens recalled from the prompts, all right; %lld tokens hit, %lld preemptions\n", REQUESTS,
           (long long)recalled, (long long)stats.hits, (long long)stats.preemptions);
    CHECK(llm_cuda_attention_close(attention) == LLM_CACHE_OK);
    CHECK(llm_cuda_close(gpu) == LLM_CACHE_OK);
    CHECK(llm_cache_close(cache) == LLM_CACHE_OK);
    return 0;
}

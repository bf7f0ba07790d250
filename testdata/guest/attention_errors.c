/*
 * attention_errors [TYPES] - bad input to llm_attention.h, on memory between guard pages,
 * gives an error, and nothing is read or written outside. After each error the same call
 * with good arguments gives the same bits as before. With TYPES, it tries only that many
 * data types, and makes the good call only after the last error.
 */
#define _DEFAULT_SOURCE
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache_check.h"
#include "llm_attention.h"

enum { BLOCKS = 6, BLOCK = 16, HEADS = 4, KV = 2, SIZE = 32, SEQS = 2, QUERIES = 4, WIDTH = HEADS * SIZE };

/* Memory that ends where a page begins that nobody may touch, and one before it. */
static void *guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *at = mmap(NULL, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mprotect(at, page, PROT_NONE) == 0 && mprotect(at + page + whole, page, PROT_NONE) == 0);
    return at + page + whole - bytes;
}

static llm_attention_cache cache;
static llm_attention_batch batch;
static llm_tensor keys, values;
static float *query, *output;
static int32_t *start, *lens, *tables;
static int64_t *slots;
static float before[QUERIES * WIDTH];
static int brief; /* TYPES was given */

static float any(int i) { return (float)((uint32_t)i * 2654435761u >> 8) / (1 << 23) - 1; }

static void make(int dtype, int layout) {
    cache = (llm_attention_cache){.size = sizeof cache, .dtype = dtype, .layout = layout, .blocks = BLOCKS, .block_size = BLOCK,
                                  .kv_heads = KV, .head_size = SIZE};
    OK(llm_attention_describe(&cache, NULL, 0));
    size_t bytes = (size_t)cache.key_bytes;
    CHECK(bytes % 64 == 0);
    OK(llm_attention_describe(&cache, guarded(bytes), (int64_t)bytes));
    int n = BLOCKS * BLOCK, width = KV * SIZE;
    float *k = guarded(sizeof *k * (size_t)(n * width)), *v = guarded(sizeof *v * (size_t)(n * width));
    slots = guarded(sizeof *slots * (size_t)n);
    for (int i = 0; i < n * width; i++) {
        k[i] = any(i), v[i] = any(i + 77777);
    }
    for (int i = 0; i < n; i++) {
        slots[i] = i;
    }
    keys = (llm_tensor){.at = k, .rows = n, .stride = width};
    values = (llm_tensor){.at = v, .rows = n, .stride = width};
    OK(llm_attention_write(&cache, &keys, &values, slots, n, NULL, 2));
    query = guarded(sizeof *query * QUERIES * WIDTH), output = guarded(sizeof *output * QUERIES * WIDTH);
    for (int i = 0; i < QUERIES * WIDTH; i++) {
        query[i] = any(i + 5555);
    }
    start = guarded(sizeof *start * (SEQS + 1)), lens = guarded(sizeof *lens * SEQS), tables = guarded(sizeof *tables * SEQS * 3);
    memcpy(start, (int32_t[]){0, 3, 4}, sizeof *start * (SEQS + 1));
    memcpy(lens, (int32_t[]){20, 48}, sizeof *lens * SEQS);
    memcpy(tables, (int32_t[]){5, 3, -1, 0, 5, 1}, sizeof *tables * SEQS * 3);
    batch = (llm_attention_batch){
        .size = sizeof batch, .heads = HEADS, .queries = {.at = query, .rows = QUERIES, .stride = WIDTH},
        .outputs = {.at = output, .rows = QUERIES, .stride = WIDTH}, .query_start = start, .seq_lens = lens,
        .block_tables = tables, .seqs = SEQS, .table_stride = 3,
    };
    OK(llm_attention_forward(&cache, &batch, 1));
    memcpy(before, output, sizeof before);
}

static void same(void) {
    memset(output, 0, sizeof before);
    OK(llm_attention_forward(&cache, &batch, 3));
    CHECK(memcmp(before, output, sizeof before) == 0);
}

/* A value that is wrong for a moment. */
#define BAD(code, field, value)                                              \
    do {                                                                     \
        __typeof__(field) good_ = (field);                                   \
        (field) = (value);                                                   \
        EXPECT(code, llm_attention_forward(&cache, &batch, 1));              \
        (field) = good_;                                                     \
        if (!brief) {                                                        \
            same();                                                          \
        }                                                                    \
    } while (0)

/* Outputs that would be written onto something that the call reads. */
static void onto_input(void) {
    static float room[QUERIES * WIDTH];
#define ONTO(field, n)                                                        \
    do {                                                                      \
        memset(room, 0, sizeof room);                                         \
        memcpy(room, field, sizeof *(field) * (n));                           \
        __typeof__(field) good_ = (field);                                    \
        (field) = (void *)room;                                               \
        BAD(LLM_CACHE_E_OVERLAP, batch.outputs.at, room);                     \
        CHECK(memcmp(room, good_, sizeof *(field) * (n)) == 0);               \
        (field) = good_;                                                      \
    } while (0)
    ONTO(batch.query_start, SEQS + 1);
    ONTO(batch.seq_lens, SEQS);
    ONTO(batch.block_tables, SEQS * 3);
    llm_attention_options zeros = {.size = sizeof zeros};
    batch.options = &zeros;
    zeros.sinks = room;
    EXPECT(LLM_CACHE_OK, llm_attention_forward(&cache, &batch, 1));
    void *good = batch.outputs.at;
    batch.outputs.at = room;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_forward(&cache, &batch, 1));
    zeros.sinks = NULL;
    memcpy(room, &zeros, sizeof zeros);
    batch.options = (void *)room;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_forward(&cache, &batch, 1));
    batch.options = NULL;
    memcpy(room, &cache, sizeof cache);
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_forward((void *)room, &batch, 1));
    CHECK(memcmp(room, &cache, sizeof cache) == 0);
    batch.outputs.at = good;
    same();
}

static void forward(void) {
    const int32_t wrong[] = {INT32_MIN, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        BAD(LLM_CACHE_E_RANGE, tables[1], wrong[i]);
        BAD(LLM_CACHE_E_RANGE, lens[0], wrong[i]);
        BAD(LLM_CACHE_E_RANGE, start[0], wrong[i]);
        BAD(LLM_CACHE_E_RANGE, start[1], wrong[i]);
        BAD(LLM_CACHE_E_RANGE, start[2], wrong[i]);
        BAD(LLM_CACHE_E_RANGE, batch.heads, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.dtype, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.layout, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.blocks, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.block_size, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.kv_heads, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.head_size, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, cache.reserved, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, batch.queries.dtype, wrong[i]);
        BAD(LLM_CACHE_E_RANGE, batch.outputs.dtype, wrong[i]);
    }
    const int64_t far[] = {INT64_MIN, -1, INT64_MAX, (int64_t)1 << 40};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        BAD(LLM_CACHE_E_RANGE, batch.seqs, far[i]);
        BAD(LLM_CACHE_E_RANGE, batch.table_stride, far[i]);
        BAD(LLM_CACHE_E_RANGE, cache.block_stride, far[i]);
        BAD(LLM_CACHE_E_RANGE, cache.head_stride, far[i]);
        BAD(LLM_CACHE_E_RANGE, batch.queries.rows, far[i]);
        BAD(LLM_CACHE_E_RANGE, batch.queries.stride, far[i]);
    }
    BAD(LLM_CACHE_E_RANGE, tables[1], BLOCKS);
    BAD(LLM_CACHE_E_RANGE, lens[0], 2); /* fewer tokens than queries */
    BAD(LLM_CACHE_E_RANGE, lens[1], 49);
    BAD(LLM_CACHE_E_RANGE, batch.heads, 3);
    BAD(LLM_CACHE_E_RANGE, cache.value_bytes, cache.value_bytes - 1);
    BAD(LLM_CACHE_E_NULL, cache.key, NULL);
    BAD(LLM_CACHE_E_NULL, batch.query_start, NULL);
    BAD(LLM_CACHE_E_NULL, batch.block_tables, NULL);
    BAD(LLM_CACHE_E_NULL, batch.outputs.at, NULL);
    BAD(LLM_CACHE_E_SIZE, cache.size, 8);
    BAD(LLM_CACHE_E_SIZE, batch.size, 8);
    BAD(LLM_CACHE_E_ALIGN, batch.queries.at, (char *)query - 2);
    BAD(LLM_CACHE_E_ALIGN, batch.seq_lens, (const int32_t *)(const void *)((char *)lens - 1));
    BAD(LLM_CACHE_E_OVERLAP, batch.outputs.at, query - 1);
    BAD(LLM_CACHE_E_OVERLAP, batch.outputs.at, cache.key);
    BAD(LLM_CACHE_E_RANGE, cache.block_stride, 0);
    BAD(LLM_CACHE_E_RANGE, cache.head_stride, 0);
    BAD(LLM_CACHE_E_RANGE, cache.key_scale, NAN);
    EXPECT(LLM_CACHE_E_NULL, llm_attention_forward(NULL, &batch, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_forward(&cache, NULL, 1));
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_forward(&cache, &batch, -1));
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_forward(&cache, &batch, 257));
    llm_attention_options options = {.size = sizeof options, .window = -1};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    options = (llm_attention_options){.size = sizeof options, .soft_cap = NAN};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    options = (llm_attention_options){.size = sizeof options, .version = 3};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    options = (llm_attention_options){.size = sizeof options, .common_prefix = 18};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    options = (llm_attention_options){.size = sizeof options, .scale = INFINITY};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    options = (llm_attention_options){.size = sizeof options, .reserved = {BLOCK}};
    BAD(LLM_CACHE_E_RANGE, batch.options, &options);
    onto_input();
    /* Queries and outputs in one place are fine. */
    memcpy(output, query, sizeof before);
    llm_attention_batch one = batch;
    one.queries.at = output;
    OK(llm_attention_forward(&cache, &one, 2));
    CHECK(memcmp(before, output, sizeof before) == 0);
}

static void writing(void) {
    int64_t n = keys.rows;
    const int64_t wrong[] = {INT64_MIN, -2, BLOCKS * BLOCK, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        slots[n - 1] = wrong[i];
        EXPECT(LLM_CACHE_E_RANGE, llm_attention_write(&cache, &keys, &values, slots, n, NULL, 1));
    }
    slots[n - 1] = n - 1;
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_write(&cache, &keys, &values, slots, n - 1, NULL, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_write(&cache, &keys, NULL, slots, n, NULL, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_write(&cache, &keys, &values, NULL, n, NULL, 1));
    llm_rotation rotation = {.size = sizeof rotation, .rotated = 3};
    EXPECT(LLM_CACHE_E_NULL, llm_attention_write(&cache, &keys, &values, slots, n, &rotation, 1));
    llm_tensor inside = keys;
    inside.at = cache.key;
    inside.rows = 1;
    llm_tensor one = values;
    one.rows = 1;
    if (cache.dtype == LLM_F32) {
        EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_write(&cache, &inside, &one, slots, 1, NULL, 1));
    }
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_write(&cache, &keys, &values, cache.key, n, NULL, 1));
    llm_attention_cache other = cache;
    other.block_stride = 0;
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_write(&other, &keys, &values, slots, n, NULL, 1));
    other = cache;
    other.value = cache.key;
    other.value_bytes = cache.key_bytes;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_write(&other, &keys, &values, slots, n, NULL, 1));
    if (cache.dtype == LLM_INT8) {
        other = cache;
        other.value_scales = cache.key_scales;
        other.value_scales_bytes = cache.key_scales_bytes;
        EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_write(&other, &keys, &values, slots, n, NULL, 1));
    }
    same();
}

/* Memory that does not hold the blocks. A refused call changes nothing. */
static void describing(void) {
    static _Alignas(64) char memory[4096];
    llm_attention_cache good = {.size = sizeof good, .dtype = LLM_F32, .blocks = 1, .block_size = 16, .kv_heads = 1, .head_size = 8};
#define UNDESCRIBED(code, at, bytes)                                       \
    do {                                                                   \
        llm_attention_cache was = c;                                       \
        EXPECT(code, llm_attention_describe(&c, at, bytes));               \
        CHECK(memcmp(&was, &c, sizeof c) == 0);                            \
    } while (0)
    llm_attention_cache c = good;
    UNDESCRIBED(LLM_CACHE_E_RANGE, memory, 1023);
    UNDESCRIBED(LLM_CACHE_E_RANGE, memory, 0);
    UNDESCRIBED(LLM_CACHE_E_RANGE, memory, -1);
    UNDESCRIBED(LLM_CACHE_E_ALIGN, memory + 32, 2048);
    UNDESCRIBED(LLM_CACHE_E_OVERLAP, (void *)((uintptr_t)&c & ~(uintptr_t)63), 2048);
    c.reserved = 1;
    UNDESCRIBED(LLM_CACHE_E_RANGE, memory, 2048);
    c = good, c.blocks = 0;
    UNDESCRIBED(LLM_CACHE_E_RANGE, NULL, 0);
    /* More bytes than an int64_t counts. */
    c = good, c.blocks = INT32_MAX, c.block_size = 65536, c.kv_heads = 4096, c.head_size = 256;
    UNDESCRIBED(LLM_CACHE_E_RANGE, NULL, 0);
    UNDESCRIBED(LLM_CACHE_E_RANGE, memory, sizeof memory);
    c = good;
    OK(llm_attention_describe(&c, memory, 1024));
    CHECK(c.key == memory && c.key_bytes == 1024);
}

static void stores(void) {
    llm_kvstore store = 77;
    llm_kvstore_config config = {.size = sizeof config, .layers = 2, .dtype = LLM_F16, .blocks = 4, .host_blocks = 2,
                                 .block_size = 16, .kv_heads = 2, .head_size = 32, .threads = 1};
#define REFUSED(field, value)                                              \
    do {                                                                   \
        llm_kvstore_config c = config;                                     \
        c.field = (value);                                                 \
        EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_open(&c, &store));           \
    } while (0)
    const int32_t wrong[] = {INT32_MIN, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(layers, wrong[i]);
        REFUSED(dtype, wrong[i]);
        REFUSED(layout, wrong[i]);
        REFUSED(block_size, wrong[i]);
        REFUSED(kv_heads, wrong[i]);
        REFUSED(head_size, wrong[i]);
        REFUSED(threads, wrong[i]);
        REFUSED(groups, wrong[i]);
        REFUSED(reserved, wrong[i]);
    }
    REFUSED(blocks, INT32_MAX);
    REFUSED(bytes, -1);
    REFUSED(blocks, -1);
    REFUSED(blocks, 0); /* no bytes either */
    REFUSED(host_blocks, -1);
    CHECK(store == 77);
    EXPECT(LLM_CACHE_E_NULL, llm_kvstore_open(NULL, &store));
    EXPECT(LLM_CACHE_E_HANDLE, llm_kvstore_close(77));
    config.blocks = 0, config.bytes = 3 * 2 * 16 * 2 * 32 * 2 * 2 + 5;
    OK(llm_kvstore_open(&config, &store));
    int32_t blocks = 0;
    OK(llm_kvstore_blocks(store, &blocks));
    CHECK(blocks == 3);
    llm_attention_cache layer = {.size = sizeof layer};
    OK(llm_kvstore_layer(store, 1, &layer));
    memset(layer.key, 0x3c, 64);
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_layer(store, 2, &layer));
    EXPECT(LLM_CACHE_E_ORDER, llm_kvstore_write(store, 0, &keys, &values, NULL));
    llm_kvstore_pair pair = {.src = 0, .dst = 3};
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_copy(store, &pair, 1));
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_swap_in(store, &pair, 1));
    pair.dst = 1;
    OK(llm_kvstore_swap_out(store, &pair, 1));
    pair = (llm_kvstore_pair){.src = 1, .dst = 2};
    OK(llm_kvstore_swap_in(store, &pair, 1));
    CHECK(memcmp(layer.key, (char *)layer.key + 2 * layer.block_stride, 64) == 0);
    OK(llm_kvstore_close(store));
    EXPECT(LLM_CACHE_E_HANDLE, llm_kvstore_close(store));
}

/* A step of two requests, made by hand. */
static void steps(void) {
    llm_kvstore store;
    llm_kvstore_config config = {.size = sizeof config, .layers = 2, .dtype = LLM_E4M3, .blocks = 4, .block_size = 16,
                                 .kv_heads = KV, .head_size = SIZE, .threads = 2};
    llm_kvstore_config huge = config;
    huge.blocks = 1 << 24, huge.layers = 1 << 16;
    EXPECT(LLM_CACHE_E_MEMORY, llm_kvstore_open(&huge, &store));
    float scales[2] = {1, NAN};
    config.key_scales = scales;
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_open(&config, &store));
    scales[1] = 0.5f;
    OK(llm_kvstore_open(&config, &store));
    llm_attention_cache layer = {.size = sizeof layer};
    OK(llm_kvstore_layer(store, 1, &layer));
    CHECK(layer.key_scale == 0.5f);
    llm_cache_row rows[2] = {{.id = 1, .kind = LLM_CACHE_ROW_NEW, .tokens = 3}, {.id = 2, .kind = LLM_CACHE_ROW_NEW, .tokens = 1}};
    int32_t blocks[2] = {1, 2};
    int64_t starts[2] = {0, 0}, ends[2] = {1, 2}, places[4] = {16, 17, 18, 32};
    llm_cache_copy copy = {.src = 1, .dst = 2, .group = 1, .index = -1, .id = 1};
    llm_cache_step step = {.size = sizeof step, .tokens = 4, .rows = {rows, 2, 2}, .blocks = {blocks, 2, 2},
                           .block_starts = {starts, 2, 2}, .block_ends = {ends, 2, 2}, .slots = {places, 4, 4}};
    places[3] = 64;
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &step));
    places[3] = 32, rows[1].id = 1;
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &step));
    rows[1].id = 2, rows[1].kind = 3;
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &step));
    rows[1].kind = LLM_CACHE_ROW_NEW, step.copies = (llm_cache_copies){&copy, 1, 1};
    EXPECT(LLM_CACHE_E_RANGE, llm_kvstore_begin(store, &step));
    step.copies.len = 0;
    llm_tensor in = keys, at = {.at = query, .rows = 4, .stride = WIDTH};
    in.rows = 4;
    EXPECT(LLM_CACHE_E_ORDER, llm_kvstore_write(store, 1, &in, &in, NULL));
    OK(llm_kvstore_begin(store, &step));
    OK(llm_kvstore_write(store, 1, &in, &in, NULL)); /* one struct for both is fine */
    llm_tensor inside = at;
    OK(llm_kvstore_layer(store, 0, &layer));
    inside.at = layer.key;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_kvstore_attend(store, 1, HEADS, &at, &inside, NULL)); /* in another layer */
    memcpy(output, query, sizeof before);
    at.at = output;
    OK(llm_kvstore_attend(store, 1, HEADS, &at, &at, NULL)); /* in place */
    OK(llm_kvstore_close(store));
}

int main(int argc, char **argv) {
    brief = argc > 1;
    int types = brief ? atoi(argv[1]) : LLM_INT8 + 1;
    for (int dtype = LLM_F32; dtype < types; dtype++) {
        for (int layout = LLM_LAYOUT_TILE; layout <= LLM_LAYOUT_FLASH; layout++) {
            make(dtype, layout);
            writing();
            if (dtype == LLM_F32 || layout == dtype % 3) { /* each type, and each layout */
                forward();
            }
        }
    }
    describing();
    stores();
    steps();
    return 0;
}

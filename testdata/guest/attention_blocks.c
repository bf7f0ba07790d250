/*
 * attention_blocks - blocks in the caller's memory, with gaps between them, are copied, swapped
 * with blocks of other strides, and converted to other layouts. Attention over them gives the
 * same bits as before. What cannot be copied gives an error.
 */
#include "cache_check.h"
#include "llm_attention.h"

enum { BLOCKS = 8, BLOCK = 16, HEADS = 4, KV = 2, SIZE = 32, TOKENS = 3 * BLOCK - 5, WIDTH = HEADS * SIZE };

static float keys[TOKENS * KV * SIZE], values[TOKENS * KV * SIZE], query[2 * WIDTH], before[2 * WIDTH];

static float any(int i) { return (float)((uint32_t)i * 2654435761u >> 8) / (1 << 23) - 1; }

/* A cache in new memory, with so many bytes after each block of LLM_LAYOUT_TILE. */
static llm_attention_cache make(int dtype, int layout, int blocks, int gap) {
    llm_attention_cache c = {.size = sizeof c, .dtype = dtype, .layout = layout, .blocks = blocks, .block_size = BLOCK,
                             .kv_heads = KV, .head_size = SIZE};
    OK(llm_attention_describe(&c, NULL, 0));
    size_t bytes = (size_t)(c.key_bytes + blocks * gap + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    CHECK(memory != NULL);
    memset(memory, 0, bytes);
    OK(llm_attention_describe(&c, memory, (int64_t)bytes));
    if (layout == LLM_LAYOUT_TILE) {
        c.block_stride += gap, c.key_bytes += blocks * gap, c.value_bytes += blocks * gap;
        if (dtype == LLM_INT8) {
            c.scale_block_stride += gap, c.key_scales_bytes += blocks * gap, c.value_scales_bytes += blocks * gap;
        }
    }
    return c;
}

/* The attention of two query tokens over the blocks a, b and c. */
static void attend(const llm_attention_cache *cache, int32_t a, int32_t b, int32_t c, float *output) {
    int32_t table[] = {a, b, c}, start[] = {0, 2}, len[] = {TOKENS};
    llm_attention_batch batch = {
        .size = sizeof batch, .heads = HEADS, .queries = {.at = query, .rows = 2, .stride = WIDTH},
        .outputs = {.at = output, .rows = 2, .stride = WIDTH}, .query_start = start, .seq_lens = len,
        .block_tables = table, .seqs = 1, .table_stride = 3,
    };
    OK(llm_attention_forward(cache, &batch, 2));
}

static void same(const llm_attention_cache *cache, int32_t a, int32_t b, int32_t c) {
    float output[2 * WIDTH];
    attend(cache, a, b, c, output);
    CHECK(memcmp(output, before, sizeof before) == 0);
}

/* Writes the tokens into the blocks 0, 1 and 2. */
static void fill(const llm_attention_cache *cache) {
    int64_t slots[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        slots[i] = i;
    }
    llm_tensor k = {.at = keys, .rows = TOKENS, .stride = KV * SIZE}, v = {.at = values, .rows = TOKENS, .stride = KV * SIZE};
    OK(llm_attention_write(cache, &k, &v, slots, TOKENS, NULL, 1));
    attend(cache, 0, 1, 2, before);
}

static void move(int dtype, int layout) {
    llm_attention_cache device = make(dtype, layout, BLOCKS, 64), host = make(dtype, layout, 4, 192);
    fill(&device);
    /* Copy on write: a later pair sees what an earlier one has written. */
    llm_kvstore_pair copies[] = {{0, 3}, {3, 4}, {1, 3}};
    OK(llm_attention_copy(&device, &device, copies, 3, 2));
    same(&device, 4, 3, 2);
    same(&device, 0, 1, 2);
    /* Out to the host, other numbers in their place, and in again. */
    llm_kvstore_pair out[] = {{4, 0}, {3, 3}, {2, 1}}, in[] = {{0, 5}, {3, 6}, {1, 7}}, over[] = {{6, 2}, {7, 4}};
    OK(llm_attention_copy(&host, &device, out, 3, 2));
    OK(llm_attention_copy(&device, &device, over, 2, 1));
    OK(llm_attention_copy(&device, &host, in, 3, 0));
    same(&device, 5, 6, 7);
    same(&host, 0, 3, 1);
    OK(llm_attention_copy(&device, &host, NULL, 0, 1));
    free(device.key), free(host.key);
}

static void convert(int dtype) {
    llm_attention_cache tile = make(dtype, LLM_LAYOUT_TILE, BLOCKS, 128);
    fill(&tile);
    for (int layout = LLM_LAYOUT_TILE; layout <= LLM_LAYOUT_FLASH; layout++) {
        llm_attention_cache other = make(dtype, layout, BLOCKS, 64), back = make(dtype, LLM_LAYOUT_TILE, BLOCKS, 0);
        OK(llm_attention_convert(&other, &tile));
        same(&other, 0, 1, 2);
        OK(llm_attention_convert(&back, &other));
        same(&back, 0, 1, 2);
        free(other.key), free(back.key);
    }
    free(tile.key);
}

static void refuse(void) {
    llm_attention_cache a = make(LLM_F16, LLM_LAYOUT_TILE, BLOCKS, 0), b = make(LLM_F32, LLM_LAYOUT_TILE, BLOCKS, 0);
    llm_attention_cache part = a, quantized = make(LLM_INT8, LLM_LAYOUT_TILE, BLOCKS, 0);
    fill(&a);
    llm_kvstore_pair pairs[] = {{0, 3}, {1, BLOCKS}};
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_copy(&a, &a, pairs, 2, 1));
    pairs[1].dst = -1;
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_copy(&a, &a, pairs, 2, 1));
    pairs[1].dst = 4;
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_copy(&a, &b, pairs, 2, 1));
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_copy(&a, &a, pairs, -1, 1));
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_copy(&a, &a, pairs, 2, -1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_copy(&a, &a, NULL, 2, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_copy(NULL, &a, pairs, 2, 1));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_copy(&a, NULL, pairs, 2, 1));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_copy(&a, &a, (void *)a.key, 1, 1));
    part.key = (char *)a.key + a.block_stride, part.key_bytes -= a.block_stride;
    part.value = (char *)a.value + a.block_stride, part.value_bytes -= a.block_stride;
    part.blocks--;
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_copy(&part, &a, pairs, 2, 1));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_convert(&a, &part));
    EXPECT(LLM_CACHE_E_OVERLAP, llm_attention_convert(&a, &a));
    EXPECT(LLM_CACHE_E_RANGE, llm_attention_convert(&quantized, &a));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_convert(NULL, &a));
    EXPECT(LLM_CACHE_E_NULL, llm_attention_convert(&a, NULL));
    same(&a, 0, 1, 2);
    free(a.key), free(b.key), free(quantized.key);
}

int main(void) {
    for (int i = 0; i < TOKENS * KV * SIZE; i++) {
        keys[i] = any(i), values[i] = any(i + 77777);
    }
    for (int i = 0; i < 2 * WIDTH; i++) {
        query[i] = any(i + 5555);
    }
    static const int types[] = {LLM_F32, LLM_F16, LLM_E4M3, LLM_INT8};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (int layout = LLM_LAYOUT_TILE; layout <= LLM_LAYOUT_FLASH; layout++) {
            move(types[i], layout);
        }
        convert(types[i]);
    }
    refuse();
    return 0;
}

/*
 * cuda_errors DRIVER - llm_cuda.h without a driver, without a context, and with bad input; and that blocks are
 * copied and swapped as it says.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "cache_check.h"
#include "llm_cuda.h"

static void *driver;
static int call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d) {
    int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t);
    void *found = dlsym(driver, name);
    CHECK(found != NULL);
    memcpy(&function, &found, sizeof function);
    return function(a, b, c, d);
}
#define CU(name, a, b, c, d) CHECK(call(name, (uintptr_t)(a), (uintptr_t)(b), (uintptr_t)(c), (uintptr_t)(d)) == 0)
#define SAYS(text) CHECK(strstr(llm_cache_error_detail(), text) != NULL)

static uint64_t memory(const void *contents, size_t bytes) {
    uint64_t p = 0;
    CU("cuMemAlloc_v2", &p, bytes, 0, 0);
    CU("cuMemcpyHtoD_v2", p, contents, bytes, 0);
    CU("cuStreamSynchronize", 0, 0, 0, 0); /* the copy may only be staged, and other streams do not wait for it */
    return p;
}

static void moves(llm_cuda gpu, llm_cuda_stream stream) {
    enum { BLOCK = 64, COUNT = 3 };
    uint8_t first[COUNT * BLOCK], second[COUNT * BLOCK], back[COUNT * BLOCK];
    for (int i = 0; i < COUNT * BLOCK; i++) {
        first[i] = (uint8_t)i, second[i] = (uint8_t)(255 - i);
    }
    uint64_t arrays[2] = {memory(first, sizeof first), memory(second, sizeof second)}, host = 0;
    llm_cuda_blocks blocks = {.size = sizeof blocks, .arrays = 2, .at = memory(arrays, sizeof arrays), .block_bytes = BLOCK};
    llm_kvstore_pair pair[3] = {{0, 2}, {1, 0}, {0, 1}};
    uint64_t pairs = memory(pair, sizeof pair);
    CU("cuMemHostAlloc", &host, 2 * BLOCK, 0, 0);
    OK(llm_cuda_copy(gpu, &blocks, pairs, 1, stream));                 /* 0 to 2 */
    OK(llm_cuda_swap_out(gpu, &blocks, host, pairs + 8, 1, stream));   /* 1 to the host's 0 */
    OK(llm_cuda_swap_in(gpu, &blocks, host, pairs, 0, stream));        /* nothing */
    CU("cuStreamSynchronize", stream, 0, 0, 0);
    const uint8_t *there = (const uint8_t *)(uintptr_t)host;
    CHECK(memcmp(there, first + BLOCK, BLOCK) == 0 && memcmp(there + BLOCK, second + BLOCK, BLOCK) == 0);
    memset((void *)(uintptr_t)host, 7, 2 * BLOCK);
    OK(llm_cuda_swap_in(gpu, &blocks, host, pairs + 16, 1, stream));   /* the host's 0 to 1 */
    CU("cuStreamSynchronize", stream, 0, 0, 0);
    CU("cuMemcpyDtoH_v2", back, arrays[1], sizeof back, 0);
    CHECK(memcmp(back, second, BLOCK) == 0 && back[BLOCK] == 7 && back[2 * BLOCK - 1] == 7 && memcmp(back + 2 * BLOCK, second, BLOCK) == 0);

    llm_cuda_blocks bad = blocks;
    bad.block_bytes = 8;
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_copy(gpu, &bad, pairs, 1, stream));
    SAYS("copy_blocks of blocks of 8 bytes");
    bad = blocks, bad.at = 4;
    EXPECT(LLM_CACHE_E_ALIGN, llm_cuda_copy(gpu, &bad, pairs, 1, stream));
    EXPECT(LLM_CACHE_E_ALIGN, llm_cuda_copy(gpu, &blocks, 0, 1, stream));
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_copy(gpu, NULL, pairs, 1, stream));
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_copy(gpu, &blocks, pairs, -1, stream));
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_swap_out(gpu, &blocks, 0, pairs, 1, stream));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cuda_copy(gpu + 1, &blocks, pairs, 1, stream));
}

static void writes(llm_cuda gpu, llm_cuda_stream stream) {
    llm_cuda_cache cache = {.size = sizeof cache, .block_size = 16, .kv_heads = 1, .head_size = 64, .key = 256, .value = 256};
    llm_cuda_tensor rows = {256, 64}, odd = {264, 64}, backwards = {256, -8};
    OK(llm_cuda_write(gpu, &cache, &rows, &rows, 256, 0, stream));
    EXPECT(LLM_CACHE_E_ALIGN, llm_cuda_write(gpu, &cache, &odd, &rows, 256, 1, stream));
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_write(gpu, &cache, &rows, &backwards, 256, 1, stream));
    EXPECT(LLM_CACHE_E_ALIGN, llm_cuda_write(gpu, &cache, &rows, &rows, 0, 1, stream));
    cache.cache_dtype = LLM_E4M3; /* of what? */
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_write(gpu, &cache, &rows, &rows, 256, 1, stream));
    SAYS("dtype is 0: want LLM_F16 (1) or LLM_BF16 (2)");
    cache.cache_dtype = 0;
    cache.size = offsetof(llm_cuda_cache, dtype); /* a program of before */
    OK(llm_cuda_write(gpu, &cache, &rows, &rows, 256, 0, stream));
    cache.size = sizeof cache;
    cache.value = 0;
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_write(gpu, &cache, &rows, &rows, 256, 1, stream));
    SAYS("value of cache is 0");
    cache.value = 256, cache.head_size = 20;
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_write(gpu, &cache, &rows, &rows, 256, 1, stream));
}

static void plans(llm_cuda gpu) {
    llm_cuda_attention attention;
    llm_cuda_attention_config good = {.size = sizeof good, .dtype = LLM_BF16, .heads = 8, .block_size = 16, .kv_heads = 2, .head_size = 64}, bad = good;
    bad.head_size = 72;
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_attention_open(gpu, &bad, &attention));
    SAYS("heads of 72 elements");
    bad = good, bad.dtype = LLM_F32;
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_attention_open(gpu, &bad, &attention));
    bad = good, bad.cache_dtype = LLM_F16; /* with queries of BF16 */
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_attention_open(gpu, &bad, &attention));
    SAYS("cache_dtype is 1: want LLM_E4M3 (3), LLM_E5M2 (4), or 0 for dtype");
    bad = good, bad.cache_dtype = LLM_E5M2;
    OK(llm_cuda_attention_open(gpu, &bad, &attention));
    OK(llm_cuda_attention_close(attention));
    bad = good, bad.window = -1;
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_attention_open(gpu, &bad, &attention));
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_attention_open(gpu, &good, NULL));
    OK(llm_cuda_attention_open(gpu, &good, &attention));
    EXPECT(LLM_CACHE_E_BUSY, llm_cuda_close(gpu));
    SAYS("attentions of the GPU are open: close all 1 first");
    int32_t entries[64], starts[3] = {0, 1, 3}, lengths[2] = {300, 2};
    llm_cuda_plan plan = {.size = sizeof plan, .entries = {.at = entries, .cap = 2}};
    EXPECT(LLM_CACHE_E_SMALL, llm_cuda_attention_plan(attention, starts, lengths, 2, &plan));
    CHECK(plan.entries.len > 2 && plan.entries.len <= 64);
    plan.entries.cap = plan.entries.len;
    OK(llm_cuda_attention_plan(attention, starts, lengths, 2, &plan));
    CHECK(plan.part_bytes > 0);
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_attention_plan(attention, NULL, lengths, 2, &plan));
    lengths[1] = 1; /* fewer than its queries */
    EXPECT(LLM_CACHE_E_RANGE, llm_cuda_attention_plan(attention, starts, lengths, 2, &plan));
    llm_cuda_batch batch = {.size = sizeof batch, .queries = {256, 512}, .outputs = {256, 512}, .key = 256, .value = 256, .table_stride = 20};
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_attention_run(attention, &batch, NULL));
    SAYS("block_tables");
    batch.key = 0;
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_attention_run(attention, &batch, NULL));
    OK(llm_cuda_attention_close(attention));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cuda_attention_run(attention, &batch, NULL));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    llm_cuda gpu = 0;
    EXPECT(LLM_CACHE_E_GPU, llm_cuda_open("libnothere.so.1", &gpu));
    SAYS("no NVIDIA driver: cannot load libnothere.so.1");
    EXPECT(LLM_CACHE_E_GPU, llm_cuda_open(argv[1], &gpu));
    SAYS("make a context current on this thread");
    EXPECT(LLM_CACHE_E_NULL, llm_cuda_open(argv[1], NULL));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cuda_close(gpu));
    CHECK((driver = dlopen(argv[1], RTLD_NOW)) != NULL);
    int device;
    void *context;
    llm_cuda_stream stream;
    CU("cuDeviceGet", &device, 0, 0, 0);
    CU("cuDevicePrimaryCtxRetain", &context, device, 0, 0);
    CU("cuCtxSetCurrent", context, 0, 0, 0);
    CU("cuStreamCreate", &stream, 1, 0, 0);
    OK(llm_cuda_open(argv[1], &gpu));
    moves(gpu, stream);
    writes(gpu, stream);
    plans(gpu);
    CU("cuCtxSetCurrent", NULL, 0, 0, 0);
    EXPECT(LLM_CACHE_E_GPU, llm_cuda_copy(gpu, &(llm_cuda_blocks){.size = sizeof(llm_cuda_blocks), .arrays = 1, .at = 256, .block_bytes = 16}, 256, 1, stream));
    SAYS("CUDA_ERROR_INVALID_CONTEXT (201)");
    CU("cuCtxSetCurrent", context, 0, 0, 0);
    OK(llm_cuda_close(gpu));
    EXPECT(LLM_CACHE_E_HANDLE, llm_cuda_close(gpu));
    return 0;
}

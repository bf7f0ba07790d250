#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_cache.h"
#define CHECK(c) do { if (!(c)) { fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #c, llm_cache_error_detail()); exit(1);} } while (0)
int main(void) {
    llm_cache_config config = {.size = sizeof config, .blocks = 100, .block_size = 16, .max_seqs = 8, .max_tokens = 512, .max_model_len = 512};
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == 0);
    int32_t prompt[40];
    for (int i = 0; i < 40; i++) prompt[i] = i;
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {prompt, 40}, .max_tokens = 3};
    llm_request id;
    CHECK(llm_cache_add(cache, &spec, &id) == 0);
    llm_cache_step step = {.size = sizeof step};
    CHECK(llm_cache_schedule(cache, &step) == LLM_CACHE_E_SMALL);
    printf("%ld rows %ld blocks %ld slots\n", (long)step.rows.len, (long)step.blocks.len, (long)step.slots.len);
#define ROOM(a) step.a.at = calloc(1000, sizeof *step.a.at); step.a.cap = 1000
    ROOM(rows); ROOM(drafts); ROOM(blocks); ROOM(block_starts); ROOM(block_ends); ROOM(slots); ROOM(copies); ROOM(common); ROOM(preempted); ROOM(finished);
    llm_cache_outcome out = {.size = sizeof out};
    out.kept.at = calloc(10, 4); out.kept.cap = 10; out.done.at = calloc(10, sizeof *out.done.at); out.done.cap = 10;
    for (;;) {
        CHECK(llm_cache_schedule(cache, &step) == 0);
        if (step.rows.len == 0) break;
        int32_t one = 1, tok = 7;
        printf("id %lx computed %d tokens %d slot0 %ld\n", (long)step.rows.at[0].id, step.rows.at[0].computed, step.rows.at[0].tokens, (long)step.slots.at[0]);
        CHECK(llm_cache_update(cache, &one, 1, &tok, 1, &out) == 0);
    }
    CHECK(llm_cache_close(cache) == 0);
    CHECK(llm_cache_close(cache) == LLM_CACHE_E_HANDLE);
    return 0;
}

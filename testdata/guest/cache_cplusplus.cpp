// cache_cplusplus - llm_cache.h in C++.
#include <cstdio>
#include <cstring>
#include <vector>

#include "llm_cache.h"

int main() {
    llm_cache_config config{};
    config.size = sizeof config;
    config.num_gpu_blocks = 10;
    config.block_size = 16;
    config.max_num_seqs = 1;
    config.max_num_batched_tokens = config.max_model_len = 64;
    llm_cache cache = 0;
    const std::vector<int32_t> prompt(20, 7);
    llm_cache_spec spec{};
    spec.size = sizeof spec;
    spec.tokens = {prompt.data(), static_cast<int64_t>(prompt.size())};
    spec.max_tokens = 1;
    llm_request id = 0;
    llm_cache_step step{};
    step.size = sizeof step;
    const bool good = llm_cache_open(&config, &cache) == LLM_CACHE_OK && llm_cache_add(cache, &spec, &id) == LLM_CACHE_OK &&
                      llm_cache_schedule(cache, &step) == LLM_CACHE_E_SMALL && step.rows.len == 1 &&
                      std::strlen(llm_cache_error_detail()) > 0 && llm_cache_close(cache) == LLM_CACHE_OK;
    if (!good) {
        std::puts(llm_cache_error_detail());
    }
    return good ? 0 : 1;
}

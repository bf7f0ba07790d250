/* cache_memory - under a limit of address space: a pool that does not fit is refused, and a smaller one works. */
#include "cache_check.h"

int main(void) {
    llm_cache_config config = config_small();
    llm_cache cache = 0;
    config.blocks = LLM_CACHE_MAX_BLOCKS;
    EXPECT(LLM_CACHE_E_MEMORY, llm_cache_open(&config, &cache));
    CHECK(cache == 0);
    config.blocks = 100000;
    OK(llm_cache_open(&config, &cache));
    request(cache, 1, 20, 2);
    OK(llm_cache_close(cache));
    return 0;
}

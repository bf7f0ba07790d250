/*
 * cache_memory - under a limit of address space: a pool that does not fit is
 * refused, and a smaller one works. The limit is 1 GB above what the process has
 * when a cache has been opened, for the runtime reserves much, and how much depends
 * on its threads.
 */
#define _GNU_SOURCE
#include "cache_check.h"

#include <sys/resource.h>
#include <unistd.h>

static void limit_address_space(long more) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    struct rlimit limit = {0, 0};
    limit.rlim_cur = limit.rlim_max = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + more);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(void) {
    llm_cache_config config = config_small();
    llm_cache cache = 0;
    OK(llm_cache_open(&config, &cache));
    OK(llm_cache_close(cache));
    cache = 0;
    limit_address_space(1L << 30);
    config.num_gpu_blocks = LLM_CACHE_MAX_BLOCKS; /* 1.6 GB */
    EXPECT(LLM_CACHE_E_MEMORY, llm_cache_open(&config, &cache));
    CHECK(cache == 0);
    config.num_gpu_blocks = 100000;
    OK(llm_cache_open(&config, &cache));
    request(cache, 1, 20, 2);
    OK(llm_cache_close(cache));
    return 0;
}

/* cache_unwritten - the host's own mistake: a prompt that nobody wrote. Memcheck must say so. */
#include "cache_check.h"

int main(void) {
    llm_cache_config config = config_small();
    llm_cache cache = opened(&config);
    int32_t *tokens = malloc(20 * sizeof *tokens);
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 1};
    llm_request id;
    (void)llm_cache_add(cache, &spec, &id);
    free(tokens);
    OK(llm_cache_close(cache));
    return 0;
}

#include <stdlib.h>
extern void llm_start(int);
__attribute__((constructor)) static void enter(void) {
    const char *strict = getenv("LLM_MEMORY_STRICT");
    llm_start(strict != NULL && strict[0] == '1');
}

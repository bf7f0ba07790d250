// cplusplus - the headers in a C++ program: they compile, and the names link.
#include <cstdio>
#include <vector>

#include "llm_memory_ext.h"

int main() {
    std::vector<int> pool(64 * KV_PER_BLOCK);
    LLMEngine *engine = llm_init(pool.data(), pool.size() * sizeof(int));
    Sequence *seq = create_sequence(engine, 1, 16);
    const int data[] = {5, 6, 7};
    bool ok = seq != nullptr && append_kv(engine, 1, 4) == 0 && append_kv_run(engine, seq, data, 3) == 0 &&
              append_kv_batch(engine, &seq, data, 1) == 0 && fork_sequence(engine, 1, 2) != nullptr &&
              seq->kv_count == 21 && free_sequence(engine, 1) == 0 && llm_destroy(engine) == 0;
    if (!ok) {
        std::fputs("a call failed\n", stderr);
    }
    return ok ? 0 : 1;
}

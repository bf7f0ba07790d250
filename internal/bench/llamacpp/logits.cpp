// Writes llama.cpp's logits of 50 tokens as numbers of 32 bits: one row of the size of the vocabulary for each.
// Keys and values are F32. Usage: logits MODEL FILE
#include "llama.h"

#include <cstdio>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.load_mode = LLAMA_LOAD_MODE_NONE;
    llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) return 1;
    const int n = 50, vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_context_params p = llama_context_default_params();
    p.n_ctx = llama_model_n_ctx_train(model);
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.n_threads = p.n_threads_batch = 1;
    llama_context *c = llama_init_from_model(model, p);
    if (!c) return 1;
    llama_batch b = llama_batch_init(n, 0, 1);
    for (int i = 0; i < n; i++) {
        b.token[i] = i * 37 % vocab;
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = true;
    }
    b.n_tokens = n;
    if (llama_decode(c, b) != 0) return 1;
    std::FILE *f = std::fopen(argv[2], "wb");
    if (!f) return 1;
    for (int i = 0; i < n; i++) std::fwrite(llama_get_logits_ith(c, i), sizeof(float), vocab, f);
    return std::fclose(f);
}

// Measures llama.cpp through its library: a prompt of 512 tokens, and decoding with 1, 16 and
// 32 sequences after a context of 512 tokens that they share.
// With "served", it measures what llama.cpp's server computes, without the server. One load is 16 requests at once with
// a prompt of 2,048 tokens, which each slot computes for itself. The other is 8 completions of a prompt of 1,024 tokens,
// whose slots get a copy of its cells. Each answer has 64 tokens.
// With "state", it measures the time until the first token after a prompt of 2,048 tokens. The prompt is computed, or its
// cells are read from a file that was written before, as with --slot-save-path.
// Usage: bench MODEL THREADS ROUNDS [served | state]
// Compiled with -DIK_LLAMA, it measures ik_llama.cpp: bench MODEL THREADS ROUNDS [rtr]
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

// clock_id is the clock that is read: with one thread the process's processor time, which other work on the machine
// changes less.
static clockid_t clock_id = CLOCK_MONOTONIC;

static double seconds() {
    timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct Settings {
    int threads, sequences, context;
    bool flash, unified = true; // unified: all sequences share the cells
};

#ifdef IK_LLAMA
static void llama_model_free(llama_model *m) { llama_free_model(m); }
static void clear(llama_context *c) { llama_kv_cache_clear(c); }
static void copy(llama_context *c, int from, int to, int n) { llama_kv_cache_seq_cp(c, from, to, 0, n); }
#else
static void clear(llama_context *c) { llama_memory_clear(llama_get_memory(c), true); }
static void copy(llama_context *c, int from, int to, int n) {
    llama_memory_seq_cp(llama_get_memory(c), from, to, 0, n);
}
#endif

static llama_context *context(llama_model *model, const Settings &s) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = s.context;
    p.n_batch = 2048;
    p.n_ubatch = 512;
    p.n_seq_max = s.sequences;
    p.n_threads = p.n_threads_batch = s.threads;
#ifdef IK_LLAMA
    p.flash_attn = s.flash;
#else
    p.flash_attn_type = s.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.kv_unified = s.unified;
    p.no_perf = true;
#endif
    return llama_init_from_model(model, p);
}

static void add(llama_batch &b, int token, int position, int sequence, bool logits) {
    int i = b.n_tokens++;
    b.token[i] = token;
    b.pos[i] = position;
    b.n_seq_id[i] = 1;
    b.seq_id[i][0] = sequence;
    b.logits[i] = logits;
}

static void decode(llama_context *c, llama_batch &b) {
    if (llama_decode(c, b) != 0) {
        std::fprintf(stderr, "llama_decode failed\n");
        std::exit(1);
    }
    b.n_tokens = 0;
}

// prompt computes n tokens of a sequence.
static void prompt(llama_context *c, llama_batch &b, int n, int sequence) {
    for (int i = 0; i < n; i++) {
        add(b, i * 37 % 32000, i, sequence, i == n - 1);
        if (b.n_tokens == 512 || i == n - 1) decode(c, b);
    }
}

// fastest: other work on the machine only makes a round slower.
static double fastest(const std::vector<double> &v) {
    return *std::min_element(v.begin(), v.end());
}

// argmax returns the index of the largest number: greedy sampling.
static int argmax(const float *x, int n) { return (int)(std::max_element(x, x + n) - x); }

#ifndef IK_LLAMA
// served returns the time of requests with prompts of n tokens and answers of 64 tokens. Each prompt is computed, or
// copied from the first one.
static double served(llama_model *model, int threads, int rounds, int requests, int n, bool copied, bool flash,
    bool unified) {
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_context *c = context(model, {threads, requests, (n + 64) * requests, flash, unified});
    llama_batch b = llama_batch_init(2048, 0, 1);
    std::vector<double> times;
    for (int r = 0; r < rounds; r++) {
        clear(c);
        std::vector<int> next(requests, 1);
        double begin = seconds();
        for (int s = 0; s < (copied ? 1 : requests); s++) prompt(c, b, n, s);
        for (int s = 1; copied && s < requests; s++) copy(c, 0, s, n);
        for (int k = 0; k < 64; k++) {
            for (int s = 0; s < requests; s++) add(b, next[s], n + k, s, true);
            decode(c, b);
            for (int s = 0; s < requests; s++) next[s] = argmax(llama_get_logits_ith(c, s), vocab);
        }
        times.push_back(seconds() - begin);
    }
    llama_batch_free(b);
    llama_free(c);
    return fastest(times);
}

// state prints the times until the first token.
static void state(llama_model *model, int threads, int rounds, bool flash, const std::string &file) {
    const int n = 2048;
    llama_context *c = context(model, {threads, 1, n + 64, flash});
    llama_batch b = llama_batch_init(n, 0, 1);
    std::vector<double> computed, restored;
    for (int r = 0; r < rounds; r++) {
        llama_memory_clear(llama_get_memory(c), true);
        double begin = seconds();
        prompt(c, b, n, 0);
        computed.push_back(seconds() - begin);
        llama_memory_seq_rm(llama_get_memory(c), 0, n - 1, -1);
        std::vector<llama_token> tokens(n - 1), read(n);
        size_t count = 0;
        if (!llama_state_seq_save_file(c, file.c_str(), 0, tokens.data(), tokens.size())) std::exit(1);
        llama_memory_clear(llama_get_memory(c), true);
        begin = seconds();
        if (!llama_state_seq_load_file(c, file.c_str(), 0, read.data(), read.size(), &count)) std::exit(1);
        add(b, 1, n - 1, 0, true);
        decode(c, b);
        restored.push_back(seconds() - begin);
    }
    std::printf("first token flash=%d computed %.3f s, restored %.3f s (%.3f)\n", flash, fastest(computed), fastest(restored),
                fastest(restored) / fastest(computed));
    llama_batch_free(b);
    llama_free(c);
}
#endif

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    const int threads = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
#ifdef IK_LLAMA
    mp.use_mmap = false;
    mp.repack_tensors = argc == 5;
#else
    mp.load_mode = LLAMA_LOAD_MODE_NONE; // read into memory, which can be in huge pages
#endif
    llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) {
        std::fprintf(stderr, "the model cannot be loaded\n");
        return 1;
    }
#ifndef IK_LLAMA
    if (argc == 5 && argv[4] == std::string("state")) {
        const std::string file = std::string(argv[1]) + ".state";
        for (bool flash : {false, true}) state(model, threads, rounds, flash, file);
        std::remove(file.c_str());
        llama_model_free(model);
        return 0;
    }
    if (argc == 5) {
        for (bool flash : {false, true}) {
            std::printf("shared=16 flash=%d %.2f s\n", flash, served(model, threads, rounds, 16, 2048, false, flash,
                false));
            std::fflush(stdout);
            // llama.cpp copies the beginning of a sequence only where all share the cells.
            std::printf("n=8 flash=%d %.2f s\n", flash, served(model, threads, rounds, 8, 1024, true, flash, true));
            std::fflush(stdout);
        }
        llama_model_free(model);
        return 0;
    }
#endif
    if (threads == 1) clock_id = CLOCK_PROCESS_CPUTIME_ID;
    llama_batch b = llama_batch_init(2048, 0, 1);
    for (bool flash : {false, true}) {
        {
            llama_context *c = context(model, {threads, 1, 1024, flash});
            std::vector<double> times;
            for (int r = 0; r < rounds; r++) {
                clear(c);
                double begin = seconds();
                prompt(c, b, 512, 0);
                times.push_back(seconds() - begin);
            }
            std::printf("prefill=512 flash=%d %.1f tokens/s\n", flash, 512 / fastest(times));
            llama_free(c);
        }
        for (int n : {1, 16, 32}) {
            llama_context *c = context(model, {threads, n, 1024 + 64 * n, flash});
            prompt(c, b, 512, 0);
            for (int s = 1; s < n; s++) copy(c, 0, s, 512);
            std::vector<double> times;
            for (int r = 0; r < 3 * rounds; r++) {
                for (int s = 0; s < n; s++) add(b, s, 512 + r, s, true);
                double begin = seconds();
                decode(c, b);
                times.push_back(seconds() - begin);
            }
            std::printf("decode=%d flash=%d %.1f tokens/s\n", n, flash, n / fastest(times));
            llama_free(c);
        }
    }
    llama_batch_free(b);
    llama_model_free(model);
}

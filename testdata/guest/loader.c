/*
 * loader - the calls of llm_memory.h and llm_memory_ext.h through dlopen and
 * dlsym, so that the other programs run unchanged with a library that comes
 * while they run. It comes at the first call, or with load_library, and is closed
 * when the program exits.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory_ext.h"

void load_library(void);

static struct {
    LLMEngine *(*init)(void *, size_t);
    Sequence *(*create)(LLMEngine *, int, int);
    Sequence *(*fork)(LLMEngine *, int, int);
    int (*append)(LLMEngine *, int, int);
    int (*release)(LLMEngine *, int);
    int (*destroy)(LLMEngine *);
    int (*batch)(LLMEngine *, Sequence *const *, const int *, int);
    int (*run)(LLMEngine *, Sequence *, const int *, int);
} library;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *handle;

static void bind(const char *name, void *function) {
    void *symbol = dlsym(handle, name);
    if (symbol == NULL) {
        fprintf(stderr, "loader: %s\n", dlerror());
        _Exit(1);
    }
    memcpy(function, &symbol, sizeof symbol);
}

static void unload(void) { dlclose(handle); }

static void load(void) {
    atexit(unload); /* after what the library does there */
    handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "loader: %s\n", dlerror());
        _Exit(1);
    }
    bind("llm_init", &library.init);
    bind("create_sequence", &library.create);
    bind("fork_sequence", &library.fork);
    bind("append_kv", &library.append);
    bind("free_sequence", &library.release);
    bind("llm_destroy", &library.destroy);
    bind("append_kv_batch", &library.batch);
    bind("append_kv_run", &library.run);
}

void load_library(void) { pthread_once(&once, load); }

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    load_library();
    return library.init(pool_addr, pool_size);
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    load_library();
    return library.create(engine, seq_id, initial_kv_len);
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    load_library();
    return library.fork(engine, parent_seq_id, new_seq_id);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    load_library();
    return library.append(engine, seq_id, kv_data);
}

int free_sequence(LLMEngine *engine, int seq_id) {
    load_library();
    return library.release(engine, seq_id);
}

int llm_destroy(LLMEngine *engine) {
    load_library();
    return library.destroy(engine);
}

int append_kv_batch(LLMEngine *engine, Sequence *const *seqs, const int *kv_data, int n) {
    load_library();
    return library.batch(engine, seqs, kv_data, n);
}

int append_kv_run(LLMEngine *engine, Sequence *seq, const int *kv_data, int n) {
    load_library();
    return library.run(engine, seq, kv_data, n);
}

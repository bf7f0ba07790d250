/*
 * main_leaves - main ends by pthread_exit, and the process with its last thread, which
 * another detached thread has started. A destructor of main, that thread and an exit
 * handler call. With "joined" that thread waits for main by pthread_join.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int pool[8 * KV_PER_BLOCK];
static LLMEngine *engine;
static pthread_key_t own;

static atomic_int main_left;
static pthread_t main_thread;
static int joins;

static void of_main(void *value) {
    CHECK(value == &own && append_kv(engine, 1, 7) == 0);
    atomic_store(&main_left, 1);
}

static void at_end(void) {
    printf("%d free\n", engine->free_local_blocks);
    CHECK(llm_destroy(engine) == 0);
}

static void *last(void *unused) {
    CHECK(!joins || pthread_join(main_thread, NULL) == 0);
    while (!atomic_load(&main_left)) {
        usleep(100);
    }
    CHECK(append_kv(engine, 1, 8) == 0 && free_sequence(engine, 1) == 0);
    return unused;
}

static void *first(void *unused) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, last, NULL) == 0 && pthread_detach(thread) == 0);
    return unused;
}

int main(int argc, char **argv) {
    joins = argc > 1 && strcmp(argv[1], "joined") == 0;
    main_thread = pthread_self();
    engine = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && create_sequence(engine, 1, 1) != NULL);
    CHECK(pthread_key_create(&own, of_main) == 0 && pthread_setspecific(own, &own) == 0);
    CHECK(atexit(at_end) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first, NULL) == 0 && pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

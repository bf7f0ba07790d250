/*
 * The process that Memcheck watches: the submission with the real heap. It plays
 * whole traces from a file and says nothing; what is wrong Memcheck says. A pool
 * is an allocation, so that a write outside it is seen.
 *
 *   watched STEPS    an open file descriptor, struct step after struct step
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "llm_memory.h"

enum call { INIT, CREATE, FORK, APPEND, FREE, DESTROY, END };

struct step {
    uint32_t call;
    int32_t engine; /* -1: NULL */
    int32_t a, b;
};

enum { ENGINES = 4 };

static LLMEngine *engines[ENGINES];
static void *pools[ENGINES];

/* A trace may leave engines behind; the submission frees them, too. */
static void end(void) {
    for (int i = 0; i < ENGINES; i++) {
        if (engines[i] != NULL) {
            llm_destroy(engines[i]);
        }
        free(pools[i]);
        engines[i] = NULL;
        pools[i] = NULL;
    }
}

static void init(int i, int32_t size) {
    if (size < 0) {
        llm_init(NULL, 640);
        return;
    }
    if (engines[i] != NULL) {
        llm_destroy(engines[i]);
        engines[i] = NULL;
    }
    free(pools[i]);
    pools[i] = malloc(size > 0 ? (size_t)size : 1);
    engines[i] = llm_init(pools[i], (size_t)size);
}

static void play(const struct step *s) {
    LLMEngine *engine = s->engine >= 0 && s->engine < ENGINES ? engines[s->engine] : NULL;
    switch (s->call) {
    case INIT:
        init(s->engine, s->a);
        break;
    case CREATE:
        create_sequence(engine, s->a, s->b);
        break;
    case FORK:
        fork_sequence(engine, s->a, s->b);
        break;
    case APPEND:
        append_kv(engine, s->a, s->b);
        break;
    case FREE:
        free_sequence(engine, s->a);
        break;
    case DESTROY:
        llm_destroy(engine);
        if (engine != NULL) {
            engines[s->engine] = NULL;
        }
        break;
    default:
        end();
        break;
    }
}

int main(int argc, char **argv) {
    int steps = argc == 2 ? atoi(argv[1]) : -1;
    struct step step;
    while (read(steps, &step, sizeof step) == (ssize_t)sizeof step) {
        play(&step);
    }
    end();
    return 0;
}

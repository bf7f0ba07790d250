/*
 * The process that a submission runs in (internal/README.md, decision 4). It does not
 * know the right answers: it makes the requested call, and reports what the call
 * returned and which allocations it made. The grader reads everything else in the
 * memory that both have mapped.
 *
 *   runner MEMORY REQUESTS REPLIES    three open file descriptors
 *
 * MEMORY has the pools, then the submission's heap, then the events. This program
 * replaces malloc, calloc, realloc and free of the submission (objcopy --redefine-sym).
 * It allocates no chunk twice, so that the use of a freed chunk is detected.
 *
 * The submission can write everything that this program can write, and can reply
 * instead of it. False events can only hide what it did to its heap, because the grader
 * reads the state itself, and Memcheck checks the allocations on another heap
 * (grader/process/watched.c). False events cannot make a wrong state correct.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "llm_memory.h"

#include "calls.c"
#include "fault.c"
#include "prints.c"

/* internal/homework/grade/isolation/runner has the same; its protocol_test.go compares them. */
#define POOLS ((char *)0x200000000000)
#define POOLS_SIZE (UINT64_C(64) << 20)
#define HEAP ((char *)0x210000000000)
#define HEAP_SIZE (UINT64_C(256) << 20)
#define EVENTS ((char *)0x220000000000)

enum call { INIT, CREATE, FORK, APPEND, FREE, DESTROY, FORKS, CREATES, APPENDS, FREES, OPEN, ALLOCATE, GIVE_BACK, ALIAS };
enum { READ_ONLY = 256 }; /* added to a call that must not write the pools */

struct request {
    uint32_t call;
    int32_t a, b;      /* ids, lengths, data */
    uint32_t fail;     /* the allocation of this call that fails, from 1; 0: none */
    uint64_t engine;   /* or the pool */
    uint64_t size;     /* of the pool or a chunk, or how many calls or addresses */
};

struct reply {
    int64_t returned;
    uint64_t events;   /* as many are at EVENTS */
};

enum what { MALLOC = 1, CALLOC, REALLOC, RELEASE, REFUSED, BAD_RELEASE };

struct event {
    uint64_t what;
    uint64_t at;
    uint64_t size;
};

/* Enough for 100,000 calls, which are the steps of the longest trace, with 18 chunks each. */
enum { MOST_CHUNKS = 1 << 21, MOST_EVENTS = 1 << 21 };
#define EVENTS_SIZE (MOST_EVENTS * sizeof(struct event))

static struct chunk {
    uint64_t at;
    uint64_t size;
    int gone;
} *chunks; /* in the order of their addresses */

static size_t chunks_used;
static struct event *const events = (struct event *)EVENTS;
static uint64_t heap_used;
static uint32_t fail;

static void note(enum what what, uint64_t at, uint64_t size) {
    if (events_used < MOST_EVENTS) {
        events[events_used++] = (struct event){what, at, size};
    }
}

static struct chunk *chunk_at(uint64_t at) {
    size_t low = 0, high = chunks_used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (chunks[middle].at == at) {
            return &chunks[middle];
        }
        if (chunks[middle].at < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Larger chunks keep the zeros of the new file, so that the ref_count of a large pool
 * takes only address space. */
enum { MOST_FILLED = 16 << 20 };

/* alignment is a power of two, 16 or more. */
static void *get_aligned(enum what what, uint64_t size, int fill, uint64_t alignment) {
    uint64_t space = (size + 15) / 16 * 16 + 16; /* with at least 16 bytes after the chunk */
    uint64_t from = (heap_used + alignment - 1) / alignment * alignment;
    if ((fail != 0 && --fail == 0) || size > HEAP_SIZE || from > HEAP_SIZE || from + space > HEAP_SIZE || chunks_used == MOST_CHUNKS) {
        note(REFUSED, 0, size);
        return NULL;
    }
    char *at = HEAP + from;
    heap_used = from + space;
    chunks[chunks_used++] = (struct chunk){(uint64_t)(uintptr_t)at, size, 0};
    if (size <= MOST_FILLED) {
        memset(at, fill, size);
    }
    memset(at + size, 0xfd, space - size);
    note(what, (uint64_t)(uintptr_t)at, size);
    return at;
}

static void *get(enum what what, uint64_t size, int fill) { return get_aligned(what, size, fill, 16); }

void *submission_malloc(size_t size);
void *submission_calloc(size_t n, size_t size);
void *submission_realloc(void *old, size_t size);
void submission_free(void *p);
void *submission_aligned_alloc(size_t alignment, size_t size);
void *submission_memalign(size_t alignment, size_t size);
int submission_posix_memalign(void **to, size_t alignment, size_t size);
void *submission_reallocarray(void *old, size_t n, size_t size);
char *submission_strdup(const char *text);
char *submission_strndup(const char *text, size_t most);
size_t submission_malloc_usable_size(void *p);

void *submission_malloc(size_t size) { return get(MALLOC, size, 0xa5); }

void *submission_calloc(size_t n, size_t size) {
    return size != 0 && n > SIZE_MAX / size ? NULL : get(CALLOC, n * size, 0);
}

void submission_free(void *p) {
    if (p == NULL) {
        return;
    }
    struct chunk *chunk = chunk_at((uint64_t)(uintptr_t)p);
    if (chunk == NULL || chunk->gone) {
        note(BAD_RELEASE, (uint64_t)(uintptr_t)p, chunk != NULL);
        return;
    }
    chunk->gone = 1;
    if (chunk->size <= MOST_FILLED) {
        memset(p, 0xdd, chunk->size);
    }
    note(RELEASE, chunk->at, chunk->size);
}

void *submission_realloc(void *old, size_t size) {
    struct chunk *chunk = chunk_at((uint64_t)(uintptr_t)old);
    if (old != NULL && (chunk == NULL || chunk->gone)) {
        note(BAD_RELEASE, (uint64_t)(uintptr_t)old, chunk != NULL);
        return NULL;
    }
    void *fresh = get(REALLOC, size, 0xa5);
    if (fresh != NULL && chunk != NULL) {
        memcpy(fresh, old, chunk->size < size ? chunk->size : size);
        submission_free(old);
    }
    return fresh;
}

void *submission_aligned_alloc(size_t alignment, size_t size) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > HEAP_SIZE) {
        return NULL;
    }
    return get_aligned(MALLOC, size, 0xa5, alignment < 16 ? 16 : alignment);
}

void *submission_memalign(size_t alignment, size_t size) { return submission_aligned_alloc(alignment, size); }

int submission_posix_memalign(void **to, size_t alignment, size_t size) {
    void *at = submission_aligned_alloc(alignment, size);
    if (at == NULL) {
        return ENOMEM;
    }
    *to = at;
    return 0;
}

void *submission_reallocarray(void *old, size_t n, size_t size) {
    return size != 0 && n > SIZE_MAX / size ? NULL : submission_realloc(old, n * size);
}

char *submission_strndup(const char *text, size_t most) {
    size_t length = strnlen(text, most);
    char *copy = get(MALLOC, length + 1, 0xa5);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *submission_strdup(const char *text) { return submission_strndup(text, SIZE_MAX); }

size_t submission_malloc_usable_size(void *p) {
    struct chunk *chunk = chunk_at((uint64_t)(uintptr_t)p);
    return chunk == NULL ? 0 : chunk->size;
}

/* Makes several calls, and returns how many succeed. The grader compares the state after the last one. */
static int64_t calls(const struct request *r, LLMEngine *engine) {
    int64_t made = 0;
    for (uint64_t n = 0; n < r->size; n++) {
        int32_t i = (int32_t)n;
        switch (r->call % READ_ONLY) {
        case FORKS:
            made += fork_sequence(engine, r->a, r->b + i) != NULL;
            break;
        case CREATES:
            made += create_sequence(engine, r->a + i, r->b) != NULL;
            break;
        case APPENDS:
            made += append_kv(engine, r->a, r->b + i) == 0;
            break;
        default:
            made += free_sequence(engine, r->a + i) == 0;
            break;
        }
    }
    return made;
}

static char *alias;
static size_t alias_size;

/* The size of the pools and of the bytes that the grader watches after the last one. The
 * process cannot access what is after these; before the first pool nothing is mapped. */
static size_t pools_used;
static int pools_are; /* PROT_READ, or that and PROT_WRITE */
enum { WATCHED = 256, PAGE = 4096 };

/* Changes the protection of the pools if necessary. */
static void protect(int how) {
    if (how == pools_are) {
        return;
    }
    mprotect(POOLS, pools_used, how);
    if (alias != NULL) {
        mprotect(alias, alias_size, how);
    }
    pools_are = how;
}

/* Maps the end of a large pool: size bytes of the pools, from the address `engine` on,
 * are mapped a second time at the address whose upper half is b and lower half is a.
 * Between the beginning and the end of such a pool nothing is mapped. */
static void map_alias(const struct request *r) {
    void *from = (void *)(uintptr_t)r->engine;
    void *to = (void *)(uintptr_t)((uint64_t)(uint32_t)r->b << 32 | (uint32_t)r->a);
    if (alias != NULL) {
        munmap(alias, alias_size);
    }
    protect(PROT_READ | PROT_WRITE);
    mprotect(from, r->size, PROT_READ | PROT_WRITE);
    void *p = mremap(from, 0, r->size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    alias = p == MAP_FAILED ? NULL : p;
    alias_size = r->size;
}

static int64_t call(const struct request *r) {
    LLMEngine *engine = (LLMEngine *)(uintptr_t)r->engine;
    switch (r->call % READ_ONLY) {
    case INIT:
        return (int64_t)(uintptr_t)llm_init((void *)(uintptr_t)r->engine, r->size);
    case CREATE:
        return (int64_t)(uintptr_t)create_sequence(engine, r->a, r->b);
    case FORK:
        return (int64_t)(uintptr_t)fork_sequence(engine, r->a, r->b);
    case APPEND:
        return append_kv(engine, r->a, r->b);
    case FREE:
        return free_sequence(engine, r->a);
    case DESTROY:
        return llm_destroy(engine);
    case FORKS:
    case CREATES:
    case APPENDS:
    case FREES:
        return calls(r, engine);
    case OPEN:
        return 0;
    case ALIAS:
        map_alias(r);
        return alias != NULL;
    case ALLOCATE: /* the grader's own, for what it writes from outside */
        for (int i = 0; i < r->a; i++) {
            get(MALLOC, r->size, 0xa5);
        }
        return 0;
    default:
        for (uint64_t i = 0; i < r->size && i < MOST_EVENTS; i++) {
            submission_free((void *)(uintptr_t)events[i].at); /* which notes it at i or before */
        }
        return 0;
    }
}

static int transfer(ssize_t (*move)(int, void *, size_t), int fd, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = move(fd, (char *)data + done, size - done);
        if (n <= 0) {
            return 0;
        }
        done += (size_t)n;
    }
    return 1;
}

static ssize_t put(int fd, void *data, size_t size) { return write(fd, data, size); }

static void *map(void *at, size_t size, int fd, off_t offset) {
    int shared = fd >= 0 ? MAP_SHARED | MAP_FIXED_NOREPLACE : MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = mmap(at, size, PROT_READ | PROT_WRITE, shared | MAP_NORESERVE, fd, offset);
    if (p == MAP_FAILED) {
        _exit(3);
    }
    return p;
}

static void open_pool(const struct request *r) {
    uint64_t end = r->engine - (uint64_t)(uintptr_t)POOLS + r->size + WATCHED;
    if (r->engine >= (uint64_t)(uintptr_t)POOLS && end <= POOLS_SIZE) {
        end = (end + PAGE - 1) / PAGE * PAGE;
        pools_used = end > pools_used ? end : pools_used;
        pools_are = PROT_NONE; /* some of them */
        protect(PROT_READ | PROT_WRITE);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    int memory = atoi(argv[1]), requests = atoi(argv[2]), replies = atoi(argv[3]);
    map(POOLS, POOLS_SIZE, memory, 0);
    map(HEAP, HEAP_SIZE, memory, (off_t)POOLS_SIZE);
    map(EVENTS, EVENTS_SIZE + sizeof *reported + sizeof *fault, memory, (off_t)(POOLS_SIZE + HEAP_SIZE));
    reported = (struct reported *)(EVENTS + EVENTS_SIZE);
    fault = (struct fault *)(reported + 1);
    close(memory);
    chunks = map(NULL, MOST_CHUNKS * sizeof *chunks, -1, 0);
    mprotect(POOLS, POOLS_SIZE, PROT_NONE);
    watch_faults();
    watch_calls(replies);
    struct request request;
    while (transfer(read, requests, &request, sizeof request)) {
        events_used = 0;
        fail = request.fail;
        if (request.call % READ_ONLY == INIT || request.call == OPEN) {
            open_pool(&request);
        }
        if (request.call & READ_ONLY) {
            protect(PROT_READ);
        } else if (request.call < OPEN) {
            protect(PROT_READ | PROT_WRITE);
        }
        struct reply reply = {.returned = call(&request)};
        fail = 0;
        reply.events = events_used;
        if (!transfer(put, replies, &reply, sizeof reply)) {
            return 4;
        }
    }
    return 0;
}

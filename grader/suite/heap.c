//go:build ignore

/*
 * heap.c - malloc, calloc, realloc, aligned_alloc, posix_memalign and free, forwarded to
 * glibc. While heap_watch is on, blocks that its thread allocates are recorded. malloc,
 * aligned_alloc and posix_memalign fill them with 0xA5, and free fills them with 0x5A, so that
 * code that relies on new memory being zero, or reads freed memory, fails in every run.
 */
#include "heap.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

enum { SLOTS = 1 << 15 }; /* of which at most half are used */

struct block {
    void *at;
    size_t size;
};

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

static struct block blocks[SLOTS]; /* open addressing; a freed slot inside a chain stays, with at == &gone */
static char gone;
static size_t slots_used;
static long calls, live, fail_in;

/* Only the test's thread is observed, because threads of a library allocate, too. */
static _Thread_local bool observed, watching;

static struct block *slot_of(const void *p) {
    size_t i = (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 49);
    while (blocks[i].at != NULL && blocks[i].at != p) {
        i = (i + 1) % SLOTS;
    }
    return &blocks[i];
}

static void *record(void *p, size_t size) {
    if (p != NULL && slots_used < SLOTS / 2) {
        struct block *b = slot_of(p);
        slots_used += b->at == NULL;
        b->at = p;
        b->size = size;
        live++;
    }
    return p;
}

/* Removes a block from the table. Returns its size, or 0 if it was not in the table. */
static size_t forget(const void *p) {
    struct block *b = p == NULL || slots_used == 0 ? NULL : slot_of(p);
    if (b == NULL || b->at == NULL) {
        return 0;
    }
    size_t size = b->size;
    live--;
    b->at = &gone;
    /* At the end of a chain, the slot becomes empty again; otherwise each new use of an address would make the chain longer. */
    if (blocks[(size_t)(b - blocks + 1) % SLOTS].at == NULL) {
        for (; b->at == &gone; b = &blocks[(size_t)(b - blocks + SLOTS - 1) % SLOTS]) {
            b->at = NULL;
            slots_used--;
        }
    }
    return size;
}

static bool refused(void) {
    calls++;
    if (fail_in > 0 && --fail_in == 0) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *malloc(size_t size) {
    if (!watching) {
        return __libc_malloc(size);
    }
    void *p = refused() ? NULL : record(__libc_malloc(size), size);
    return p == NULL ? NULL : memset(p, 0xA5, size);
}

void *calloc(size_t n, size_t size) {
    if (!watching) {
        return __libc_calloc(n, size);
    }
    return refused() ? NULL : record(__libc_calloc(n, size), n * size);
}

void *realloc(void *p, size_t size) {
    if (watching && refused()) {
        return NULL;
    }
    bool ours = observed && forget(p) != 0;
    void *moved = __libc_realloc(p, size);
    return watching || ours ? record(moved, size) : moved;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (!watching) {
        return __libc_memalign(alignment, size);
    }
    void *p = refused() ? NULL : record(__libc_memalign(alignment, size), size);
    return p == NULL ? NULL : memset(p, 0xA5, size);
}

int posix_memalign(void **to, size_t alignment, size_t size) {
    void *p = aligned_alloc(alignment, size);
    if (p == NULL) {
        return ENOMEM;
    }
    *to = p;
    return 0;
}

void free(void *p) {
    size_t size = observed ? forget(p) : 0;
    if (size != 0) {
        memset(p, 0x5A, size);
    }
    __libc_free(p);
}

void heap_reset(void) {
    if (slots_used != 0) {
        memset(blocks, 0, sizeof blocks);
    }
    slots_used = 0;
    calls = live = fail_in = 0;
    observed = true;
    watching = false;
}

void heap_watch(bool on) { watching = on; }
long heap_calls(void) { return calls; }
long heap_live(void) { return live; }
void heap_fail_nth(long n) { fail_in = n; }

size_t heap_size_of(const void *p) {
    const struct block *b = slot_of(p);
    return b->at == NULL ? 0 : b->size;
}

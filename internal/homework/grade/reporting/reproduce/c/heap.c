
/* The heap: malloc returns memory that is not zero, free fills with 0xdd, and no memory is reused. */
struct chunk {
    struct chunk *next;
    char *at; /* NULL: freed */
    size_t size;
    size_t before[3]; /* 0 */
};
static struct chunk *volatile chunks; /* volatile: gcc assumes that malloc and free change no variable */
static volatile long allocations, live, bad_frees;
#ifndef __SANITIZE_ADDRESS__
#define OUTSIDE __attribute__((noipa)) /* lets Valgrind replace also the calls from here */
void *__libc_calloc(size_t n, size_t size);
static void *new_chunk(size_t size, size_t alignment, int fill) {
    if (size > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 4) {
        return NULL;
    }
    char *at = __libc_calloc(1, sizeof(struct chunk) + alignment + size + 32);
    allocations++;
    if (at == NULL) {
        return NULL;
    }
    at += sizeof(struct chunk);
    at += (alignment - (uintptr_t)at % alignment) % alignment;
    struct chunk *chunk = (struct chunk *)(void *)at - 1;
    *chunk = (struct chunk){chunks, at, size, {0}};
    chunks = chunk;
    live++;
    if (fill != 0 && size < 16 << 20) {
        memset(at, fill, size);
    }
    memset(at + size, 0xfd, (size + 15) / 16 * 16 + 16 - size);
    return at;
}
OUTSIDE void *malloc(size_t size) {
    return new_chunk(size, 16, 0xa5);
}
OUTSIDE void *calloc(size_t n, size_t size) {
    return size != 0 && n > PTRDIFF_MAX / size ? NULL : new_chunk(n * size, 16, 0);
}
OUTSIDE void *aligned_alloc(size_t alignment, size_t size) {
    return new_chunk(size, alignment < 16 ? 16 : alignment, 0xa5);
}
OUTSIDE void free(void *p) {
    if (p == NULL) {
        return;
    }
    struct chunk *chunk = (struct chunk *)p - 1;
    if (chunk->at != p) {
        bad_frees++;
        return;
    }
    live--;
    chunk->at = NULL;
    if (chunk->size < 16 << 20) {
        memset(p, 0xdd, chunk->size);
    }
}
OUTSIDE void *realloc(void *old, size_t size) {
    struct chunk *chunk = old == NULL ? NULL : (struct chunk *)old - 1;
    if (chunk != NULL && chunk->at != old) {
        bad_frees++;
        return NULL;
    }
    void *p = malloc(size);
    if (p != NULL && chunk != NULL) {
        memcpy(p, old, chunk->size < size ? chunk->size : size);
        free(old);
    }
    return p;
}
#endif

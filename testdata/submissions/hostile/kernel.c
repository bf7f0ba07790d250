/*
 * Calls of the kernel, and own machine code, without a symbol or a line of
 * assembler that a gate could see: the bytes of mprotect are looked for in libc,
 * starting at printf, and make a page of data executable.
 */
#include <stdint.h>
#include <stdio.h>

typedef long (*kernel_call)(long number, long a, long b, long c, long d, long e, long f);

static inline kernel_call kernel(void) {
    static unsigned char pages[8192];
    static kernel_call ready;
    static const unsigned char enter[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89,
                                          0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
    static const unsigned char mprotect[] = {0xb8, 10, 0, 0, 0, 0x0f, 0x05};
    if (ready == NULL) {
        uintptr_t code = ((uintptr_t)pages + 4095) / 4096 * 4096, at = (uintptr_t)&printf;
        if (at < 0x1000000) { /* statically linked */
            at = 0x401000;
        }
        while (memcmp((const void *)at, mprotect, sizeof mprotect) != 0) {
            at++;
        }
        memcpy((void *)code, enter, sizeof enter);
        ((long (*)(uintptr_t, long, long))at)(code, 4096, 7);
        ready = (kernel_call)code;
    }
    return ready;
}

/* Under Memcheck the heap is another. */
static inline int native(const void *chunk) { return (uintptr_t)chunk >> 40 == 0x21; }

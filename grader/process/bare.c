/*
 * What launch.c, which includes this file, needs instead of the C library: the start of
 * a program, and system calls. A static glibc asks the processor about its caches when
 * it starts, which is slow on a virtual machine. A call that fails returns -errno.
 */
#define CALL_OF(_1, _2, _3, _4, _5, _6, NAME, ...) NAME
#define CALL(...) CALL_OF(__VA_ARGS__, call5, call4, call3, call2, call1, call0)(__VA_ARGS__)
#define call0(n) kernel((n), 0, 0, 0, 0, 0)
#define call1(n, a) kernel((n), (long)(a), 0, 0, 0, 0)
#define call2(n, a, b) kernel((n), (long)(a), (long)(b), 0, 0, 0)
#define call3(n, a, b, c) kernel((n), (long)(a), (long)(b), (long)(c), 0, 0)
#define call4(n, a, b, c, d) kernel((n), (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define call5(n, a, b, c, d, e) kernel((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

#if defined __x86_64__

static long kernel(long n, long a, long b, long c, long d, long e) {
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    return result;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call begin\n");

#elif defined __aarch64__

static long kernel(long n, long a, long b, long c, long d, long e) {
    register long number __asm__("x8") = n, first __asm__("x0") = a, second __asm__("x1") = b, third __asm__("x2") = c,
                         fourth __asm__("x3") = d, fifth __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(fourth), "r"(fifth) : "memory");
    return first;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    mov x29, 0\n"
        "    mov x30, 0\n"
        "    mov x0, sp\n"
        "    bl begin\n");

#else
#error "the launcher has no system calls for this processor"
#endif

static int run(int argc, char **argv);

static void leave(int status) {
    for (;;) {
        CALL(SYS_exit_group, status);
    }
}

/* The kernel puts argc, the arguments, NULL and the environment on the stack. */
void begin(long *stack) { leave(run((int)stack[0], (char **)(stack + 1))); }

/* gcc makes calls of it out of assignments. */
void *memset(void *to, int c, size_t n) {
    for (volatile char *at = to; n > 0; n--) {
        *at++ = (char)c;
    }
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    const char *next = from;
    for (volatile char *at = to; n > 0; n--) {
        *at++ = *next++;
    }
    return to;
}

static int same(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static void print(int fd, const char *text) {
    size_t n = 0;
    while (text[n] != '\0') {
        n++;
    }
    CALL(SYS_write, fd, text, n);
}

static void print_number(int fd, long n) {
    char digits[24], *at = digits + sizeof digits - 1;
    unsigned long left = n < 0 ? 0UL - (unsigned long)n : (unsigned long)n;
    *at = '\0';
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (n < 0) {
        *--at = '-';
    }
    print(fd, at);
}

static uint64_t number(const char *text) {
    uint64_t n = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        n = 10 * n + (uint64_t)(*text - '0');
    }
    return n;
}

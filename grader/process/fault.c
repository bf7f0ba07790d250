/*
 * Where a call went wrong that ends the process by SIGSEGV or SIGBUS, for the words of a
 * report. runner.c includes this file.
 */
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#if defined __x86_64__
#define REGISTERS(u) (u)->uc_mcontext.gregs
#elif defined __aarch64__
#define REGISTERS(u) (u)->uc_mcontext.regs
#endif

/* After the calls that were refused. internal/homework/grade/isolation/runner has the same. */
static struct fault {
    uint64_t faults;  /* 0 or 1 */
    uint64_t address;
    uint64_t events;  /* of the call so far */
} *fault;

static size_t events_used;

enum { NEAR = 4096 }; /* the offset of a member or an element */

static int is_near(uint64_t a, uint64_t b) { return a - b + NEAR <= 2 * NEAR; }

/* The processor does not tell an address that no memory can have. Such a one is
 * made of memory that was filled, and still in a register. */
static uint64_t untold(const ucontext_t *u, uint64_t told) {
#ifdef REGISTERS
    static const uint64_t fills[] = {UINT64_C(0xa5a5a5a5a5a5a5a5), UINT64_C(0xdddddddddddddddd)};
    for (size_t i = 0; i < sizeof REGISTERS(u) / sizeof REGISTERS(u)[0]; i++) {
        for (size_t j = 0; j < sizeof fills / sizeof *fills; j++) {
            if (is_near((uint64_t)REGISTERS(u)[i], fills[j])) {
                return (uint64_t)REGISTERS(u)[i];
            }
        }
    }
#else
    (void)u;
#endif
    return told;
}

static void faulted(int signal, siginfo_t *info, void *context) {
    (void)signal;
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    if (info->si_code == SI_KERNEL || address >> 47 != 0) {
        address = untold(context, info->si_code == SI_KERNEL ? UINT64_MAX / 2 : address);
    }
    *fault = (struct fault){1, address, events_used};
    /* The instruction is repeated, and ends the process by the same signal. */
}

static void watch_faults(void) {
    struct sigaction action = {.sa_sigaction = faulted, .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND)};
    (void)sigaction(SIGSEGV, &action, NULL);
    (void)sigaction(SIGBUS, &action, NULL);
}

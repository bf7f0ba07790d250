/*
 * Sends a signal to a thread of the runtime, whose handler does one of three things
 * that only the thread itself can do. This is called a visit.
 *
 * Block signals. threads.c blocks all signals before a thread starts, but the runtime
 * unblocks some again, SIGCHLD and SIGPROF among them. A host that blocks one of those
 * and waits for it would wait in vain.
 *
 * Stop the monitor. The runtime's second thread wakes up regularly and manages the
 * other threads, under locks that a child forked meanwhile would inherit. The visit
 * keeps it asleep until the fork is done.
 *
 * End the thread. The runtime's threads never end, and Memcheck would report what glibc
 * has allocated for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "guest.h"
#include "threads.h"

enum { MONITOR = 1 }; /* index of the monitor: runtime.main starts it, so thread 0 is that of runtime.main */

static _Atomic long visited; /* id of the thread that is visited */
static enum { BLOCK, STOP, END } purpose;
static int stay_open; /* every thread can be visited again, not only the monitor */
static _Atomic int answer; /* 0: none yet, 1: done, 2: the thread did not sleep */
static _Atomic int monitor;
enum { RUNS, ASKED, STOPPED }; /* values of monitor */
static struct sigaction previous; /* the program's action for the signal */
static pid_t home; /* the process of the threads; a forked child does not have them */

static void sleep_us(long us) {
    const struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

/*
 * Reads where a visit has interrupted the thread. If the signal ends a system call, the call
 * returns -EINTR. If the call restarts after the signal, the next instruction is the system
 * call again, with its number and arguments in their registers.
 */
#if defined(__x86_64__)
static long long reg(const ucontext_t *context, int number) { return context->uc_mcontext.gregs[number]; }

static const uint8_t *next_instruction(const ucontext_t *context) { return (const uint8_t *)reg(context, REG_RIP); }

static int is_syscall(const uint8_t *instruction) { return instruction[0] == 0x0f && instruction[1] == 0x05; }

enum { KNOWS = 1, SYSCALL_SIZE = 2, RESULT = REG_RAX, NUMBER = REG_RAX, FIRST = REG_RDI, SECOND = REG_RSI, THIRD = REG_RDX };
#elif defined(__aarch64__)
static long long reg(const ucontext_t *context, int number) { return (long long)context->uc_mcontext.regs[number]; }

static const uint8_t *next_instruction(const ucontext_t *context) { return (const uint8_t *)context->uc_mcontext.pc; }

static int is_syscall(const uint8_t *instruction) { return *(const uint32_t *)(const void *)instruction == 0xd4000001; /* svc #0 */ }

enum { KNOWS = 1, SYSCALL_SIZE = 4, RESULT = 0, NUMBER = 8, FIRST = 0, SECOND = 1, THIRD = 2 };
#else
static long long reg(const ucontext_t *context, int number) { return (void)context, number; }

static const uint8_t *next_instruction(const ucontext_t *context) { return (const uint8_t *)context; }

static int is_syscall(const uint8_t *instruction) { return (void)instruction, 0; }

enum { KNOWS = 0, SYSCALL_SIZE = 0, RESULT = 0, NUMBER = 0, FIRST = 0, SECOND = 0, THIRD = 0 }; /* no thread counts as asleep */
#endif

/*
 * True if the visit has interrupted a sleep with a timeout. All of the monitor's sleeps
 * have one, and nothing else in the runtime returns EINTR. The monitor must not be
 * stopped at another system call: before FUTEX_WAKE, for example, it has given a
 * processor to a thread that it has not woken yet.
 */
static int was_in_timed_sleep(const ucontext_t *context) {
    return is_syscall(next_instruction(context) - SYSCALL_SIZE) && reg(context, RESULT) == -EINTR;
}

/*
 * True if the thread is parked: in a sleep with a timeout, or waiting for a futex whose
 * value has not changed.
 */
static int was_parked(const ucontext_t *context) {
    if (was_in_timed_sleep(context)) {
        return 1;
    }
    return is_syscall(next_instruction(context)) && reg(context, NUMBER) == SYS_futex &&
           (reg(context, SECOND) & FUTEX_CMD_MASK) == FUTEX_WAIT &&
           *(volatile int *)reg(context, FIRST) == (int)reg(context, THIRD);
}

static void block_all_but_faults(sigset_t *mask) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(mask);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sigdelset(mask, faults[i]);
    }
}

/* Holds the monitor until it is released. It must sleep, not poll, for llm_threads_settle to return. */
static void hold_monitor(void) {
    int state = ASKED;
    if (!atomic_compare_exchange_strong(&monitor, &state, STOPPED)) {
        return; /* it was released before the signal came */
    }
    atomic_store(&answer, 1);
    while (atomic_load(&monitor) == STOPPED) {
        syscall(SYS_futex, &monitor, FUTEX_WAIT_PRIVATE, STOPPED, NULL, NULL, 0);
    }
}

static void on_visit(int signal, siginfo_t *info, void *context) {
    if (syscall(SYS_gettid) != atomic_load(&visited)) { /* the program has sent this signal to one of its threads */
        if (previous.sa_flags & SA_SIGINFO) {
            previous.sa_sigaction(signal, info, context);
        } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
            previous.sa_handler(signal);
        }
        return;
    }
    int saved = errno;
    ucontext_t *u = context;
    if (purpose == BLOCK) {
        block_all_but_faults(&u->uc_sigmask);
        if (stay_open || llm_thread_id(MONITOR) == atomic_load(&visited)) {
            sigdelset(&u->uc_sigmask, LLM_VISIT);
        }
        atomic_store(&answer, 1);
    } else if (purpose == STOP ? !was_in_timed_sleep(u) : !was_parked(u)) {
        atomic_store(&answer, 2);
    } else if (purpose == STOP) {
        hold_monitor();
    } else {
        atomic_store(&answer, 1);
        llm_thread_leave(atomic_load(&visited));
    }
    errno = saved;
}

/* Sends the signal to a thread and returns the answer, or 0 if there is none within most_ms. */
static int visit(long tid, int what, int most_ms) {
    struct sigaction ours = {.sa_sigaction = on_visit, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&ours.sa_mask);
    purpose = what;
    atomic_store(&answer, 0);
    atomic_store(&visited, tid);
    if (sigaction(LLM_VISIT, &ours, &previous) != 0) {
        return 0;
    }
    if (syscall(SYS_tgkill, getpid(), tid, LLM_VISIT) == 0) {
        for (int us = 0; atomic_load(&answer) == 0 && us < 1000 * most_ms; us += 10) {
            sleep_us(10);
        }
    }
    struct sigaction now;
    if (sigaction(LLM_VISIT, NULL, &now) == 0 && now.sa_sigaction == on_visit) { /* not if the host has set its own meanwhile */
        sigaction(LLM_VISIT, &previous, NULL);
    }
    return atomic_load(&answer);
}

void llm_threads_block_signals(int will_end) {
    long tid;
    home = getpid();
    stay_open = will_end;
    for (int i = 0; (tid = llm_thread_id(i)) >= 0; i++) {
        if (tid > 0) {
            visit(tid, BLOCK, 100);
        }
    }
}

void llm_threads_end(int most_ms) {
    long tid;
    if (!KNOWS || getpid() != home) {
        return;
    }
    for (int i = 0; (tid = llm_thread_id(i)) >= 0; i++) {
        for (int tenths = 0; tenths < 10 * most_ms && tid > 0 && visit(tid, END, most_ms) == 2; tenths++) {
            sleep_us(100);
        }
    }
    for (int i = 0; (tid = llm_thread_id(i)) >= 0; i++) {
        for (int tenths = 0; tenths < 10 * most_ms && tid > 0 && syscall(SYS_tgkill, home, tid, 0) == 0; tenths++) {
            sleep_us(100);
        }
    }
}

void llm_monitor_stop(int most_ms) {
    long tid = llm_thread_id(MONITOR);
    if (!KNOWS || tid <= 0 || getpid() != home) {
        return;
    }
    atomic_store(&monitor, ASKED);
    for (int tenths = 0; tenths < 10 * most_ms && visit(tid, STOP, most_ms) == 2; tenths++) {
        sleep_us(100);
    }
}

/* Must be called even if the monitor did not stop, so that a signal that reaches it later does not stop it. */
void llm_monitor_release(void) {
    atomic_store(&monitor, RUNS);
    syscall(SYS_futex, &monitor, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

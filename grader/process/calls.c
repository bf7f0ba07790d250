/*
 * What a submission asks the system for, in the process of runner.c, which includes
 * this file. launch.c has forbidden all but a few calls before; this says which
 * were tried. Those that only an attack has a use for end the process by SIGSYS;
 * the others fail with EPERM, and the grader is told their numbers.
 * cmd/llmgrade/README.md has the list.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#if defined __x86_64__
#define HERE AUDIT_ARCH_X86_64
#define RESULT(u) (u)->uc_mcontext.gregs[REG_RAX]
#define SECOND(u) (u)->uc_mcontext.gregs[REG_RSI]
#define FIRST(u) (u)->uc_mcontext.gregs[REG_RDI]
#elif defined __aarch64__
#define HERE AUDIT_ARCH_AARCH64
#define RESULT(u) (u)->uc_mcontext.regs[0]
#define SECOND(u) (u)->uc_mcontext.regs[1]
#endif

/* What a refused call is told by, at the end of the events. */
enum { MOST_TOLD = 15 };
static struct told {
    uint32_t n;
    uint32_t calls[MOST_TOLD];
} *told;

static int attack_fd; /* where the grader reads replies */

enum { ATTACK_CALL = 0x61747461 /* internal/homework/grade/isolation/runner has the same */, END_CALL = 0xffffff };

#ifdef HERE

/* Other processes, executable memory, the network, other file systems, the
 * kernel's own state. */
static const int attacks[] = {
    SYS_mmap, SYS_mprotect, SYS_mremap, /* trapped only where memory becomes executable */
    SYS_pkey_mprotect, SYS_memfd_create, SYS_userfaultfd, SYS_personality, SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace,
    SYS_clone, SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_prlimit64,
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto, SYS_sendmsg, SYS_sendmmsg,
    SYS_shmget, SYS_shmat, SYS_bpf, SYS_perf_event_open, SYS_mount, SYS_umount2, SYS_chroot, SYS_pivot_root, SYS_unshare, SYS_setns,
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_init_module, SYS_finit_module, SYS_reboot, SYS_prctl, SYS_seccomp, SYS_setuid,
    SYS_setresuid, SYS_capset,
    424 /* pidfd_send_signal */, 425 /* io_uring_setup */, 434 /* pidfd_open */, 435 /* clone3 */, 438 /* pidfd_getfd */,
#ifdef __x86_64__
    SYS_fork, SYS_vfork, SYS_arch_prctl, SYS_modify_ldt, SYS_iopl, SYS_ioperm,
#endif
};

/* Whether a path leads into /proc. What the C library reads there for sysconf and
 * qsort tells nothing of a process, and is only refused. */
static int leads_into_proc(const char *path) {
    static const char *const harmless[] = {"/proc/meminfo", "/proc/stat", "/proc/cpuinfo"};
    if (path == NULL || *path != '/') {
        return 0;
    }
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        if (strcmp(path, harmless[i]) == 0) {
            return 0;
        }
    }
    while (*path == '/') {
        path++;
    }
    return strncmp(path, "proc", 4) == 0 && (path[4] == '/' || path[4] == '\0');
}

static int is_attack(int call, const ucontext_t *u) {
#ifdef SYS_open
    if (call == SYS_open) {
        return leads_into_proc((const char *)FIRST(u));
    }
#endif
    if (call == SYS_openat) {
        return leads_into_proc((const char *)SECOND(u));
    }
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        if (attacks[i] == call) {
            return 1;
        }
    }
    return 0;
}

/* SIGSYS: a call that the filter has trapped, and that was not made. */
static void trapped(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    (void)signal;
    if (is_attack(info->si_syscall, u)) {
        uint64_t said[2] = {ATTACK_CALL, (uint32_t)info->si_syscall};
        (void)!write(attack_fd, said, sizeof said);
        syscall(END_CALL);
        _exit(4); /* which the filter has done already */
    }
    uint32_t call = (uint32_t)info->si_syscall, i = 0;
    while (i < told->n && i < MOST_TOLD && told->calls[i] != call) {
        i++;
    }
    if (i < MOST_TOLD && i == told->n) {
        told->calls[told->n++] = call;
    }
    RESULT(u) = -EPERM;
}

/* What the runner and the C library need. What launch.c forbids among them, as
 * ioctl, which printf tries, fails without a word. */
static const int quiet[] = {
    SYS_read, SYS_write, SYS_writev, SYS_close, SYS_fstat, SYS_newfstatat, SYS_lseek, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_ioctl,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_futex, SYS_getrandom, SYS_exit, SYS_exit_group,
};

static struct sock_filter calls_filter[128];
static unsigned short calls_length;

static void add(uint16_t code, uint32_t k, int yes, int no) {
    calls_filter[calls_length++] = (struct sock_filter){code, (uint8_t)yes, (uint8_t)no, k};
}

enum { LOADS = BPF_LD | BPF_W | BPF_ABS, IS = BPF_JMP | BPF_JEQ | BPF_K, HAS = BPF_JMP | BPF_JSET | BPF_K, GIVES = BPF_RET | BPF_K };

static void load(int argument) {
    add(LOADS, (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)argument), 0, 0);
}

/* What a call gets by one of its arguments: whether it passes a test, or not. */
static void add_where(int call, int argument, uint16_t test, uint32_t value, uint32_t passes, uint32_t other) {
    add(IS, (uint32_t)call, 0, 4);
    load(argument);
    add(test, value, 0, 1);
    add(GIVES, passes, 0, 0);
    add(GIVES, other, 0, 0);
}

/* The signal that abort sends. Nobody but the system ends a process by SIGKILL: the
 * grader takes that for a lack of memory. */
static void add_abort(uint32_t allow, uint32_t trap) {
    add(IS, SYS_tgkill, 0, 6);
    load(2);
    add(IS, SIGABRT, 0, 3);
    load(0);
    add(IS, (uint32_t)getpid(), 0, 1);
    add(GIVES, allow, 0, 0);
    add(GIVES, trap, 0, 0);
}

static void watch_calls(int replies) {
    static char stack[1 << 16];
    attack_fd = replies;
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaltstack(&other, NULL) != 0 || sigaction(SIGSYS, &action, NULL) != 0) {
        return;
    }
    const uint32_t trap = SECCOMP_RET_TRAP, allow = SECCOMP_RET_ALLOW, end = SECCOMP_RET_KILL_PROCESS;
    add(LOADS, offsetof(struct seccomp_data, arch), 0, 0);
    add(IS, HERE, 1, 0);
    add(GIVES, end, 0, 0);
    add(LOADS, offsetof(struct seccomp_data, nr), 0, 0);
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        add(IS, (uint32_t)quiet[i], 0, 1);
        add(GIVES, allow, 0, 0);
    }
    add_where(SYS_mmap, 2, HAS, PROT_EXEC, trap, allow);
    add_where(SYS_mprotect, 2, HAS, PROT_EXEC, trap, allow);
    add_where(SYS_rt_sigaction, 0, IS, SIGSYS, end, allow);
    add_abort(allow, trap);
    add(IS, END_CALL, 0, 1);
    add(GIVES, end, 0, 0);
    add(GIVES, trap, 0, 0);
    struct sock_fprog program = {calls_length, calls_filter};
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0); /* a kernel without has said so (launch.c) */
}

#else

static void watch_calls(int replies) { attack_fd = replies; }

#endif

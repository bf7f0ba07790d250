/*
 * Handles the forbidden system calls of a submission. runner.c includes this file.
 * launch.c has already forbidden all but a few calls; this file reports which ones the
 * submission tried. A call that only an attack needs ends the process by SIGSYS. Any
 * other forbidden call fails with EPERM, and its number is reported to the grader, except
 * for those in quiet.
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

/* The numbers of refused calls, after the events in the file. */
enum { MOST_REPORTED = 15 };
static struct reported {
    uint32_t n;
    uint32_t calls[MOST_REPORTED];
} *reported;

static int attack_fd; /* where the grader reads replies */

enum { ATTACK_CALL = 0x61747461 /* internal/homework/grade/isolation/runner has the same */, END_CALL = 0xffffff };

#ifdef HERE

/* Calls that reach other processes, executable memory, the network, other file
 * systems, or the state of the kernel. */
static const int attacks[] = {
    SYS_mmap, SYS_mprotect, SYS_mremap, /* the first two are trapped only where memory becomes executable, mremap never */
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

/* Reports whether a path leads into /proc. The files that the C library reads there
 * for sysconf and qsort say nothing about a process; opening them fails, but is no attack. */
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

/* Handles SIGSYS, for a call that the filter trapped. The call was not made. */
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
    while (i < reported->n && i < MOST_REPORTED && reported->calls[i] != call) {
        i++;
    }
    if (i < MOST_REPORTED && i == reported->n) {
        reported->calls[reported->n++] = call;
    }
    RESULT(u) = -EPERM;
}

/* Calls that the runner and the C library need. Those among them that launch.c forbids
 * fail without a report, such as ioctl, which printf tries. */
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

/* Adds the result of a call that depends on one argument: passes if the argument passes the test, else other. */
static void add_where(int call, int argument, uint16_t test, uint32_t value, uint32_t passes, uint32_t other) {
    add(IS, (uint32_t)call, 0, 4);
    load(argument);
    add(test, value, 0, 1);
    add(GIVES, passes, 0, 0);
    add(GIVES, other, 0, 0);
}

/* Allows only the signal that abort sends. A process must not end itself by SIGKILL,
 * because the grader takes that for a lack of memory. */
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

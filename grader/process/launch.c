/*
 * The launcher drops every right that this kernel lets it drop, and then executes a
 * program in its own process. It is linked without any code of a submission.
 *
 *   launch KIND WITHOUT MEMORY FOLDER READ... -- PROGRAM ARGUMENT...
 *
 * KIND is "runner" for a statically linked program that uses only the files that are
 * already open, or "box" for one that also opens files, as Valgrind does: it may read
 * the files and folders READ, and write small files into FOLDER. MEMORY is the limit of
 * the address space in bytes; 0 means no limit. WITHOUT names the layers to omit, for
 * tests: u(id), l(andlock), s(eccomp), or - for none.
 *
 * If PROGRAM is "probe", nothing is executed: the launcher prints which layers hold, and
 * tries what Landlock and seccomp forbid. If it is "work", the launcher does a known computation
 * and prints the processor time that this took, in nanoseconds.
 *
 * A layer that the kernel lacks is omitted, and the probe says so. If a layer fails
 * that the kernel has, the launcher ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "bare.c"

enum { FAILED = 125 /* as in internal/homework/grade/isolation/sandbox */, NOBODY = 65534 };

static const char *without;
static int landlock_abi;

static int left_out(char layer) {
    for (const char *at = without; *at != '\0'; at++) {
        if (*at == layer) {
            return 1;
        }
    }
    return 0;
}

static void fail(const char *what, long result) {
    print(2, "sandbox: ");
    print(2, what);
    print(2, ": error ");
    print_number(2, -result);
    print(2, "\n");
    leave(FAILED);
}

/* ---- another uid ---- */

static void become_nobody(void) {
    if (CALL(SYS_getuid) != 0 || left_out('u')) {
        return;
    }
    long result = CALL(SYS_setgroups, 0, NULL);
    result = result != 0 ? result : CALL(SYS_setresgid, NOBODY, NOBODY, NOBODY);
    result = result != 0 ? result : CALL(SYS_setresuid, NOBODY, NOBODY, NOBODY);
    /* A container may have no other uid, or take the right to change it. */
    if (result != 0 && result != -EINVAL && result != -EPERM) {
        fail("another uid", result);
    }
}

/* ---- limits ---- */

static void limit(int resource, rlim_t most) {
    struct rlimit had;
    if (CALL(SYS_prlimit64, 0, resource, NULL, &had) == 0 && had.rlim_max < most) {
        most = had.rlim_max;
    }
    struct rlimit now = {most, most};
    long result = CALL(SYS_prlimit64, 0, resource, &now, NULL);
    if (result != 0) {
        fail("limits", result);
    }
}

static void set_limits(int box, rlim_t memory) {
    limit(RLIMIT_AS, memory != 0 ? memory : RLIM_INFINITY);
    limit(RLIMIT_FSIZE, box ? 1 << 20 : 0);
    limit(RLIMIT_NOFILE, box ? 256 : 16);
    limit(RLIMIT_CPU, 3600); /* the grader is there before (internal/homework/grade/isolation/cputime) */
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_STACK, 8 << 20);
    limit(RLIMIT_NPROC, 1); /* counts all of the uid's: no fork, whoever else there is */
    limit(RLIMIT_MEMLOCK, 0);
    limit(RLIMIT_MSGQUEUE, 0);
    limit(RLIMIT_SIGPENDING, 64);
}

/* ---- Landlock: the numbers of its ABI, which older headers do not have ---- */

enum {
    CREATE_RULESET = 444, ADD_RULE, RESTRICT_SELF,
    EXECUTE = 1 << 0, WRITE_FILE = 1 << 1, READ_FILE = 1 << 2, READ_DIR = 1 << 3, REMOVE_FILE = 1 << 5, MAKE_REG = 1 << 8,
    ABI1 = (1 << 13) - 1, REFER = 1 << 13, TRUNCATE = 1 << 14, IOCTL_DEV = 1 << 15,
};

struct ruleset {
    uint64_t files;
    uint64_t network; /* ABI 4: bind and connect by TCP */
    uint64_t scoped;  /* ABI 6: abstract sockets and signals to others */
};

static long open_path(const char *path, int flags) { return CALL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC); }

static void allow_beneath(int ruleset, const char *path, uint64_t rights) {
    struct __attribute__((packed)) {
        uint64_t rights;
        int32_t parent;
    } rule = {rights, (int32_t)open_path(path, O_PATH)};
    if (rule.parent == -ENOENT) {
        return; /* no such folder on this distribution */
    }
    if (rule.parent < 0) {
        fail(path, rule.parent);
    }
    long result = CALL(ADD_RULE, ruleset, 1, &rule, 0);
    if (result != 0) {
        fail(path, result);
    }
    CALL(SYS_close, rule.parent);
}

static int is_folder(const char *path) {
    long fd = open_path(path, O_PATH | O_DIRECTORY);
    return fd >= 0 && CALL(SYS_close, fd) == 0;
}

static void landlock(int box, const char *folder, char **reads, const char *program) {
    int abi = left_out('l') ? 0 : (int)CALL(CREATE_RULESET, NULL, 0, 1);
    if (abi <= 0) {
        return; /* not in this kernel, not switched on, or hidden by a container */
    }
    struct ruleset all = {.files = ABI1};
    all.files |= (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0) | (abi >= 5 ? IOCTL_DEV : 0);
    all.network = abi >= 4 ? 3 : 0;
    all.scoped = abi >= 6 ? 3 : 0;
    size_t size = abi >= 6 ? sizeof all : abi >= 4 ? 16 : 8;
    int ruleset = (int)CALL(CREATE_RULESET, &all, size, 0);
    if (ruleset < 0) {
        fail("Landlock", ruleset);
    }
    if (program != NULL) {
        allow_beneath(ruleset, program, EXECUTE | READ_FILE);
    }
    for (; box && !same(*reads, "--"); reads++) {
        allow_beneath(ruleset, *reads, EXECUTE | READ_FILE | (is_folder(*reads) ? READ_DIR : 0));
    }
    if (box) {
        uint64_t writing = READ_FILE | WRITE_FILE | MAKE_REG | REMOVE_FILE | TRUNCATE;
        allow_beneath(ruleset, folder, writing & all.files);
    }
    long result = CALL(RESTRICT_SELF, ruleset, 0);
    if (result != 0) {
        fail("Landlock", result);
    }
    CALL(SYS_close, ruleset);
    landlock_abi = abi;
}

/* ---- seccomp: a call that is not listed fails with EPERM, so that a newer C library
 * continues without a call that it tries ---- */

/* The allowed values of an argument, for a call that could otherwise reach another process. */
struct values {
    int argument, n;
    uint32_t list[6];
};

static struct values own_pid = {0, 1, {0}}, own_pid_or_0 = {0, 2, {0}}; /* filled in by seccomp() */
static struct values waking = {1, 2, {FUTEX_WAKE, FUTEX_WAKE | FUTEX_PRIVATE_FLAG}}; /* a runner has one thread, and no way to sleep for a time */
static struct values plain_fcntl = {1, 5, {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC}};
static struct values harmless_prctl = {0, 3, {PR_SET_NAME, PR_GET_NO_NEW_PRIVS, PR_SET_SECCOMP}};

struct permission {
    int call;
    const struct values *values; /* NULL: any */
};

static const struct permission runner_calls[] = {
    {SYS_read, NULL}, {SYS_write, NULL}, {SYS_writev, NULL}, {SYS_close, NULL}, {SYS_fstat, NULL}, {SYS_newfstatat, NULL}, {SYS_lseek, NULL},
    {SYS_mmap, NULL}, {SYS_munmap, NULL}, {SYS_mremap, NULL}, {SYS_mprotect, NULL}, {SYS_madvise, NULL}, {SYS_brk, NULL},
    {SYS_rt_sigaction, NULL}, {SYS_rt_sigprocmask, NULL}, {SYS_rt_sigreturn, NULL}, {SYS_sigaltstack, NULL},
    {SYS_getpid, NULL}, {SYS_gettid, NULL}, {SYS_tgkill, &own_pid}, {SYS_futex, &waking}, {SYS_getrandom, NULL},
    {SYS_set_tid_address, NULL}, {SYS_set_robust_list, NULL}, {SYS_prlimit64, &own_pid_or_0},
    {SYS_readlinkat, NULL}, {SYS_execve, NULL}, {SYS_prctl, &harmless_prctl}, {SYS_exit, NULL}, {SYS_exit_group, NULL},
#ifdef SYS_rseq
    {SYS_rseq, NULL},
#endif
#ifdef __x86_64__
    {SYS_arch_prctl, NULL}, {SYS_readlink, NULL},
#endif
};

/* A box adds what Valgrind and the sanitizers need for themselves. */
static const struct permission box_calls[] = {
    {SYS_readv, NULL}, {SYS_pread64, NULL}, {SYS_openat, NULL}, {SYS_statx, NULL}, {SYS_faccessat, NULL}, {SYS_getxattr, NULL},
    {SYS_getdents64, NULL}, {SYS_getcwd, NULL}, {SYS_fcntl, &plain_fcntl}, {SYS_dup, NULL}, {SYS_dup3, NULL}, {SYS_pipe2, NULL}, {SYS_unlinkat, NULL},
    {SYS_futex, NULL}, {SYS_ppoll, NULL}, {SYS_pselect6, NULL}, {SYS_clock_gettime, NULL}, {SYS_clock_getres, NULL},
    {SYS_gettimeofday, NULL}, {SYS_times, NULL}, {SYS_getrusage, NULL}, {SYS_uname, NULL}, {SYS_sysinfo, NULL},
    {SYS_getppid, NULL}, {SYS_getuid, NULL}, {SYS_geteuid, NULL}, {SYS_getgid, NULL}, {SYS_getegid, NULL},
    {SYS_sched_yield, NULL}, {SYS_sched_getaffinity, &own_pid_or_0}, {SYS_membarrier, NULL},
    {SYS_kill, &own_pid}, {SYS_tkill, &own_pid}, {SYS_rt_sigtimedwait, NULL}, {SYS_rt_sigpending, NULL}, {SYS_wait4, NULL},
#ifdef __x86_64__
    {SYS_open, NULL}, {SYS_stat, NULL}, {SYS_lstat, NULL}, {SYS_access, NULL}, {SYS_dup2, NULL}, {SYS_pipe, NULL}, {SYS_unlink, NULL},
    {SYS_poll, NULL}, {SYS_select, NULL}, {SYS_time, NULL}, {SYS_getpgrp, NULL}, {SYS_getrlimit, NULL}, {SYS_setrlimit, NULL},
#endif
};

static struct sock_filter filter[512];
static unsigned short length;

static void emit(uint16_t code, uint32_t k, int yes, int no) {
    filter[length++] = (struct sock_filter){code, (uint8_t)yes, (uint8_t)no, k};
}

enum { LOAD = BPF_LD | BPF_W | BPF_ABS, EQUAL = BPF_JMP | BPF_JEQ | BPF_K, ANY_OF = BPF_JMP | BPF_JSET | BPF_K, GIVE = BPF_RET | BPF_K };
static const uint32_t denied = SECCOMP_RET_ERRNO | EPERM, allowed = SECCOMP_RET_ALLOW;

static uint32_t argument(int i) { return (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)i); } /* little endian */

/* For another call, the filter continues after these instructions with the call's number still loaded. */
static void permit(const struct permission *p) {
    int n = p->values != NULL ? p->values->n : 0;
    emit(EQUAL, (uint32_t)p->call, 0, n > 0 ? n + 3 : 1);
    if (n > 0) {
        emit(LOAD, argument(p->values->argument), 0, 0);
        for (int i = 0; i < n; i++) {
            emit(EQUAL, p->values->list[i], n - i, 0);
        }
        emit(GIVE, denied, 0, 0);
    }
    emit(GIVE, allowed, 0, 0);
}

static void seccomp(int box) {
    if (left_out('s')) {
        return;
    }
#if defined __x86_64__
    const uint32_t here = AUDIT_ARCH_X86_64;
#elif defined __aarch64__
    const uint32_t here = AUDIT_ARCH_AARCH64;
#else
    const uint32_t here = 0;
#endif
    if (here == 0) {
        return;
    }
    own_pid.list[0] = own_pid_or_0.list[0] = (uint32_t)CALL(SYS_getpid);
    emit(LOAD, offsetof(struct seccomp_data, arch), 0, 0);
    emit(EQUAL, here, 1, 0);
    emit(GIVE, SECCOMP_RET_KILL_PROCESS, 0, 0);
    emit(LOAD, offsetof(struct seccomp_data, nr), 0, 0);
    if (!box) { /* memory never becomes executable; Valgrind's has to */
        emit(EQUAL, SYS_mmap, 1, 0);
        emit(EQUAL, SYS_mprotect, 0, 4);
        emit(LOAD, argument(2), 0, 0);
        emit(ANY_OF, PROT_EXEC, 0, 1);
        emit(GIVE, denied, 0, 0);
        emit(LOAD, offsetof(struct seccomp_data, nr), 0, 0);
    }
    /* The x32 ABI's numbers are above all that are listed. */
    for (size_t i = 0; box && i < sizeof box_calls / sizeof *box_calls; i++) {
        permit(&box_calls[i]);
    }
    for (size_t i = 0; i < sizeof runner_calls / sizeof *runner_calls; i++) {
        permit(&runner_calls[i]);
    }
    emit(GIVE, denied, 0, 0);
    struct sock_fprog program = {length, filter};
    long result = CALL(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    if (result != 0 && result != -EINVAL && result != -ENOSYS && result != -EPERM && result != -EACCES) {
        fail("seccomp", result);
    }
}

/* ---- */

static uint64_t used(void) {
    struct timespec now = {0};
    CALL(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What a submission does: it follows addresses, computes and branches. */
static void work(void) {
    static uint32_t next[1 << 14];
    const uint32_t n = sizeof next / sizeof *next;
    for (uint32_t i = 0; i < n; i++) {
        next[i] = (i * 5 + 1) % n;
    }
    uint64_t begin = used();
    uint32_t at = 0;
    for (uint32_t i = 0; i < 4000000; i++) {
        at = next[at];
        if (at % 3 == 0) {
            next[at] = (next[at] ^ i) % n;
        }
    }
    next[0] = at;
    print_number(1, (long)(used() - begin));
    print(1, "\n");
}

/* What each layer does: whether the limits are set, the uid, whether no_new_privs is set,
 * the ABI of Landlock if it forbids to open a file, and whether seccomp forbids a socket.
 * seccomp forbids the calls by which the other layers are tested, so those are tested before it. */
static struct {
    long limits, uid, no_new_privs, landlock, seccomp;
} holds;

static void probe_before_seccomp(void) {
    struct rlimit memory, processes;
    CALL(SYS_prlimit64, 0, RLIMIT_AS, NULL, &memory);
    CALL(SYS_prlimit64, 0, RLIMIT_NPROC, NULL, &processes);
    holds.limits = memory.rlim_cur != RLIM_INFINITY && processes.rlim_cur <= 1;
    holds.uid = CALL(SYS_getuid);
    holds.no_new_privs = CALL(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    holds.landlock = landlock_abi > 0 && open_path("/", O_RDONLY) == -EACCES ? landlock_abi : 0;
}

static void probe(void) {
    holds.seccomp = CALL(SYS_socket, AF_UNIX, SOCK_STREAM, 0) == -EPERM;
    long all[] = {holds.limits, holds.uid, holds.no_new_privs, holds.landlock, holds.seccomp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        print_number(1, all[i]);
        print(1, " ");
    }
    print(1, "\n");
}

static int run(int argc, char **argv) {
    int program = 5;
    while (program < argc && !same(argv[program - 1], "--")) {
        program++;
    }
    if (program >= argc) {
        fail("arguments", -EINVAL);
    }
    int box = same(argv[1], "box"), probing = same(argv[program], "probe"), working = same(argv[program], "work");
    without = argv[2];
    become_nobody();
    /* Again, because a change of the uid forgets it. */
    long result = CALL(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    result = result != 0 ? result : CALL(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result != 0) {
        fail("no_new_privs", result);
    }
    landlock(box, argv[4], argv + 5, probing || working ? NULL : argv[program]);
    set_limits(box, number(argv[3]));
    if (working) {
        work();
        return 0;
    }
    if (probing) {
        probe_before_seccomp();
    }
    seccomp(box);
    if (probing) {
        probe();
        return 0;
    }
    fail(argv[program], CALL(SYS_execve, argv[program], argv + program, argv + argc + 1)); /* the environment is after the arguments */
    return FAILED;
}

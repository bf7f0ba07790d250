/*
 * The launcher: takes away from itself every right that this kernel can take,
 * and executes a program in its place. It is a program of its own, linked with
 * nothing of a submission's.
 *
 *   launch KIND WITHOUT MEMORY FOLDER READ... -- PROGRAM ARGUMENT...
 *
 * KIND is "runner" for a statically linked program that reads and writes what is
 * open and nothing else; "box" for one that also opens files, as Valgrind does:
 * it reads what lies beneath the READs and writes small files into FOLDER.
 * MEMORY is the address space in bytes, 0 for any. WITHOUT names layers to leave
 * out, for tests: u(id), l(andlock), s(eccomp), or - for none.
 *
 * With "probe" as PROGRAM nothing is executed: the launcher tries what is now
 * forbidden, and prints what stopped it.
 *
 * A layer that the kernel does not have is left out, and the probe says so. One
 * that it has and that fails ends the launcher.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FAILED = 125 /* as in internal/grade/sandbox */, NOBODY = 65534 };

static const char *without;
static int landlock_abi;

static int left_out(char layer) { return strchr(without, layer) != NULL; }

static void fail(const char *what) {
    fprintf(stderr, "sandbox: %s: %s\n", what, strerror(errno));
    _exit(FAILED);
}

/* ---- another uid ---- */

static void become_nobody(void) {
    if (getuid() != 0 || left_out('u')) {
        return;
    }
    /* A container may have no other uid, or take the right to change it. */
    if ((setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0) &&
        errno != EINVAL && errno != EPERM) {
        fail("another uid");
    }
}

/* ---- limits ---- */

static void limit(int resource, rlim_t most) {
    struct rlimit had;
    if (getrlimit(resource, &had) == 0 && had.rlim_max < most) {
        most = had.rlim_max;
    }
    struct rlimit now = {most, most};
    if (setrlimit(resource, &now) != 0) {
        fail("limits");
    }
}

static void set_limits(int box, rlim_t memory) {
    limit(RLIMIT_AS, memory != 0 ? memory : RLIM_INFINITY);
    limit(RLIMIT_FSIZE, box ? 1 << 20 : 0);
    limit(RLIMIT_NOFILE, box ? 256 : 16);
    limit(RLIMIT_CPU, 10); /* many times what all traces need under Valgrind, and less than a student waits for */
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

static void allow_beneath(int ruleset, const char *path, uint64_t rights) {
    struct __attribute__((packed)) {
        uint64_t rights;
        int32_t parent;
    } rule = {rights, open(path, O_PATH | O_CLOEXEC)};
    if (rule.parent < 0) {
        if (errno == ENOENT) {
            return; /* no such folder on this distribution */
        }
        fail(path);
    }
    if (syscall(ADD_RULE, ruleset, 1, &rule, 0) != 0) {
        fail(path);
    }
    close(rule.parent);
}

static int is_folder(const char *path) {
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && close(fd) == 0;
}

static void landlock(int box, const char *folder, char **reads, const char *program) {
    int abi = left_out('l') ? 0 : (int)syscall(CREATE_RULESET, NULL, 0, 1);
    if (abi <= 0) {
        return; /* not in this kernel, not switched on, or hidden by a container */
    }
    struct ruleset all = {.files = ABI1};
    all.files |= (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0) | (abi >= 5 ? IOCTL_DEV : 0);
    all.network = abi >= 4 ? 3 : 0;
    all.scoped = abi >= 6 ? 3 : 0;
    size_t size = abi >= 6 ? sizeof all : abi >= 4 ? 16 : 8;
    int ruleset = (int)syscall(CREATE_RULESET, &all, size, 0);
    if (ruleset < 0) {
        fail("Landlock");
    }
    if (program != NULL) {
        allow_beneath(ruleset, program, EXECUTE | READ_FILE);
    }
    for (; box && strcmp(*reads, "--") != 0; reads++) {
        allow_beneath(ruleset, *reads, EXECUTE | READ_FILE | (is_folder(*reads) ? READ_DIR : 0));
    }
    if (box) {
        uint64_t writing = READ_FILE | WRITE_FILE | MAKE_REG | REMOVE_FILE | TRUNCATE;
        allow_beneath(ruleset, folder, writing & all.files);
    }
    if (syscall(RESTRICT_SELF, ruleset, 0) != 0) {
        fail("Landlock");
    }
    close(ruleset);
    landlock_abi = abi;
}

/* ---- seccomp: what is not listed fails with EPERM, so that a libc that tries
 * something new goes on without it ---- */

/* What an argument of a call may be, where it could reach another process. */
struct values {
    int argument, n;
    uint32_t list[6];
};

static struct values own_pid = {0, 1, {0}}, own_pid_or_0 = {0, 2, {0}}; /* filled in by seccomp() */
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
    {SYS_getpid, NULL}, {SYS_gettid, NULL}, {SYS_tgkill, &own_pid}, {SYS_futex, NULL}, {SYS_getrandom, NULL},
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
    {SYS_ppoll, NULL}, {SYS_pselect6, NULL}, {SYS_nanosleep, NULL}, {SYS_clock_nanosleep, NULL}, {SYS_clock_gettime, NULL}, {SYS_clock_getres, NULL},
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

/* What is no match falls through, with the call's number still loaded. */
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
    own_pid.list[0] = own_pid_or_0.list[0] = (uint32_t)getpid();
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
    for (size_t i = 0; i < sizeof runner_calls / sizeof *runner_calls; i++) {
        permit(&runner_calls[i]);
    }
    for (size_t i = 0; box && i < sizeof box_calls / sizeof *box_calls; i++) {
        permit(&box_calls[i]);
    }
    emit(GIVE, denied, 0, 0);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0 && errno != EINVAL && errno != ENOSYS && errno != EPERM && errno != EACCES) {
        fail("seccomp");
    }
}

/* ---- */

/* For each layer, something that only it forbids. What a submission could ask
 * after seccomp is not what must be asked here, so this comes in two halves. */
static struct {
    int limits, uid, no_new_privs, landlock, seccomp;
} holds;

static void probe_before_seccomp(void) {
    struct rlimit memory, processes;
    getrlimit(RLIMIT_AS, &memory);
    getrlimit(RLIMIT_NPROC, &processes);
    holds.limits = memory.rlim_cur != RLIM_INFINITY && processes.rlim_cur <= 1;
    holds.uid = (int)getuid();
    holds.no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    holds.landlock = landlock_abi > 0 && open("/", O_RDONLY) == -1 && errno == EACCES ? landlock_abi : 0;
}

static void probe(void) {
    errno = 0;
    holds.seccomp = socket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == EPERM;
    printf("%d %d %d %d %d\n", holds.limits, holds.uid, holds.no_new_privs, holds.landlock, holds.seccomp);
}

int main(int argc, char **argv) {
    int program = 5;
    while (program < argc && strcmp(argv[program - 1], "--") != 0) {
        program++;
    }
    if (program >= argc) {
        errno = EINVAL;
        fail("arguments");
    }
    int box = strcmp(argv[1], "box") == 0, probing = strcmp(argv[program], "probe") == 0;
    without = argv[2];
    become_nobody();
    /* Again, because a change of the uid forgets it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        fail("no_new_privs");
    }
    landlock(box, argv[4], argv + 5, probing ? NULL : argv[program]);
    set_limits(box, strtoull(argv[3], NULL, 10));
    if (probing) {
        probe_before_seccomp();
    }
    seccomp(box);
    if (probing) {
        probe();
        return 0;
    }
    execv(argv[program], argv + program);
    fail(argv[program]);
}

package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrAttack means that the submission did what only an attack does, such as certain system calls
// (grader/process/calls.c).
var ErrAttack = errors.New("it attacks the grader")

const attackCall = 0x61747461 // the reply of a process that will end because of an attack

func (p *Process) attacked(number uint64) error {
	err := p.cause(syscall.EPIPE)
	if !errors.Is(err, ErrAttack) {
		return err // the submission wrote the reply
	}
	call := uint32(number)
	switch call {
	case unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PKEY_MPROTECT:
		return fmt.Errorf("%w: it makes memory executable (%s)", ErrAttack, CallName(call))
	case unix.SYS_OPENAT, sysOpen:
		return fmt.Errorf("%w: it opens a file of /proc (%s)", ErrAttack, CallName(call))
	}
	return fmt.Errorf("%w: it makes the system call %s", ErrAttack, CallName(call))
}

// Refused returns the numbers of the system calls that have failed in the sandbox so far because they are forbidden: at
// most maxReported different ones. A call that only an attack makes is not among them, because it ends the process. The
// process can write these numbers, so they are not reliable.
func (m *memory) Refused() (calls []uint32) {
	text := m.bytes[PoolsSize+HeapSize+uint64(eventsSize):]
	for i := range min(maxReported, binary.NativeEndian.Uint32(text)) {
		calls = append(calls, binary.NativeEndian.Uint32(text[4+4*i:]))
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

// CallName returns Linux's name of a system call.
func CallName(call uint32) string {
	if name, found := callNames[call]; found {
		return name
	}
	if name, found := archCallNames[call]; found {
		return name
	}
	return fmt.Sprintf("number %d", call)
}

var callNames = map[uint32]string{
	unix.SYS_MMAP: "mmap", unix.SYS_MPROTECT: "mprotect", unix.SYS_PKEY_MPROTECT: "pkey_mprotect", unix.SYS_MEMFD_CREATE: "memfd_create",
	unix.SYS_PTRACE: "ptrace", unix.SYS_PROCESS_VM_READV: "process_vm_readv", unix.SYS_PROCESS_VM_WRITEV: "process_vm_writev",
	unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_EXECVE: "execve", unix.SYS_EXECVEAT: "execveat",
	unix.SYS_KILL: "kill", unix.SYS_TKILL: "tkill", unix.SYS_TGKILL: "tgkill", unix.SYS_PRLIMIT64: "prlimit64",
	unix.SYS_SOCKET: "socket", unix.SYS_SOCKETPAIR: "socketpair", unix.SYS_CONNECT: "connect", unix.SYS_BIND: "bind", unix.SYS_LISTEN: "listen",
	unix.SYS_ACCEPT: "accept", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_SHMGET: "shmget", unix.SYS_SHMAT: "shmat",
	unix.SYS_BPF: "bpf", unix.SYS_PERF_EVENT_OPEN: "perf_event_open", unix.SYS_MOUNT: "mount", unix.SYS_UNSHARE: "unshare", unix.SYS_SETNS: "setns",
	unix.SYS_PRCTL: "prctl", unix.SYS_SECCOMP: "seccomp", unix.SYS_SETUID: "setuid", unix.SYS_PERSONALITY: "personality", unix.SYS_IO_URING_SETUP: "io_uring_setup",
	unix.SYS_PIDFD_OPEN: "pidfd_open", unix.SYS_USERFAULTFD: "userfaultfd", unix.SYS_KEYCTL: "keyctl", unix.SYS_REBOOT: "reboot",
	unix.SYS_OPENAT: "openat", unix.SYS_FACCESSAT: "faccessat", unix.SYS_STATX: "statx", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_MKDIRAT: "mkdirat", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_TRUNCATE: "truncate", unix.SYS_FCNTL: "fcntl", unix.SYS_DUP: "dup", unix.SYS_DUP3: "dup3",
	unix.SYS_PIPE2: "pipe2", unix.SYS_PREAD64: "pread64", unix.SYS_PWRITE64: "pwrite64", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_CLOCK_GETTIME: "clock_gettime", unix.SYS_GETTIMEOFDAY: "gettimeofday", unix.SYS_TIMES: "times", unix.SYS_GETRUSAGE: "getrusage",
	unix.SYS_GETCWD: "getcwd", unix.SYS_UNAME: "uname", unix.SYS_SYSINFO: "sysinfo", unix.SYS_GETPPID: "getppid", unix.SYS_GETUID: "getuid",
	unix.SYS_SCHED_YIELD: "sched_yield", unix.SYS_SCHED_GETAFFINITY: "sched_getaffinity", unix.SYS_SETITIMER: "setitimer", unix.SYS_PPOLL: "ppoll",
}

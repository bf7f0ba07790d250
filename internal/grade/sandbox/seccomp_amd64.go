package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hasSeccomp = true

// calls is what a statically linked runner needs, and the exec that starts it.
// Everything else fails with EPERM, so that a libc that tries something new goes
// on without it.
var calls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_LSEEK,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_FUTEX, unix.SYS_GETRANDOM,
	unix.SYS_ARCH_PRCTL, unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_PRLIMIT64,
	unix.SYS_READLINK, unix.SYS_READLINKAT, unix.SYS_EXECVE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// forbidden is what a watched program must not do: make processes, talk to
// others, look into them, or change what lies outside its folder.
var forbidden = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV,
	unix.SYS_PROCESS_VM_WRITEV, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_SENDTO, unix.SYS_SENDMSG,
	unix.SYS_CHMOD, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_CHOWN, unix.SYS_FCHOWN, unix.SYS_LCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET,
}

// seccomp leaves the calls above, or for a watched program all but the forbidden
// ones. Another architecture, and the x32 ABI's numbers, end the process or fail.
func seccomp(watched bool) error {
	list, listed, others := calls, uint32(allowed), uint32(denied)
	if watched {
		list, listed, others = forbidden, denied, allowed
	}
	filter := program(list, listed, others)
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

const (
	allowed = unix.SECCOMP_RET_ALLOW
	denied  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// program gives one answer to the calls of the list and another to the others.
func program(list []uint32, listed, others uint32) []unix.SockFilter {
	const (
		load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		give     = unix.BPF_RET | unix.BPF_K
		nrAt     = 0 // offsetof(struct seccomp_data, nr)
		archAt   = 4
		x32Begin = 0x40000000
	)
	filter := []unix.SockFilter{
		{Code: load, K: archAt},
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jt: 1},
		{Code: give, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: nrAt},
		{Code: atLeast, K: x32Begin, Jf: 1},
		{Code: give, K: denied},
	}
	for i, call := range list {
		filter = append(filter, unix.SockFilter{Code: equal, K: call, Jt: uint8(len(list) - i)}) // to listed
	}
	return append(filter, unix.SockFilter{Code: give, K: others}, unix.SockFilter{Code: give, K: listed})
}

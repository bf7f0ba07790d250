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

// seccomp leaves the calls above. The program is: another architecture, or the
// x32 ABI's numbers: end the process; one of calls: allow; else EPERM.
func seccomp() error {
	const (
		load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		give     = unix.BPF_RET | unix.BPF_K
		nrAt     = 0 // offsetof(struct seccomp_data, nr)
		archAt   = 4
		x32Begin = 0x40000000
	)
	n := len(calls)
	filter := []unix.SockFilter{
		{Code: load, K: archAt},
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jt: 1},
		{Code: give, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: nrAt},
		{Code: atLeast, K: x32Begin, Jt: uint8(n)}, // to EPERM
	}
	for i, call := range calls {
		filter = append(filter, unix.SockFilter{Code: equal, K: call, Jt: uint8(n - i)}) // to allow
	}
	filter = append(filter,
		unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

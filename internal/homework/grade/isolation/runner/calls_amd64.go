package runner

import "golang.org/x/sys/unix"

const sysOpen = unix.SYS_OPEN

// archCallNames has the names of system calls that amd64 has and other processors do not.
var archCallNames = map[uint32]string{
	unix.SYS_OPEN: "open", unix.SYS_FORK: "fork", unix.SYS_VFORK: "vfork", unix.SYS_ACCESS: "access", unix.SYS_STAT: "stat", unix.SYS_UNLINK: "unlink",
	unix.SYS_RENAME: "rename", unix.SYS_MKDIR: "mkdir", unix.SYS_TIME: "time", unix.SYS_ALARM: "alarm", unix.SYS_PAUSE: "pause", unix.SYS_POLL: "poll",
	unix.SYS_SELECT: "select", unix.SYS_PIPE: "pipe", unix.SYS_DUP2: "dup2", unix.SYS_ARCH_PRCTL: "arch_prctl", unix.SYS_MODIFY_LDT: "modify_ldt",
}

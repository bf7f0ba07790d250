package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockABI is the kernel's version of Landlock, 0 where it has none.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// landlock leaves of the file system the program itself, to be executed.
func landlock(program string) error {
	const rights1 = 1<<13 - 1 // every right on files that ABI 1 knows
	rights := uint64(rights1)
	if abi := landlockABI(); abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
		if abi >= 3 {
			rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		}
	}
	ruleset := rights // struct landlock_ruleset_attr of ABI 1 is this one field
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleset)), unsafe.Sizeof(ruleset), 0)
	if errno != 0 {
		return fmt.Errorf("Landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	file, err := unix.Open(program, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("Landlock: %s: %w", program, err)
	}
	defer unix.Close(file)
	rule := unix.LandlockPathBeneathAttr{
		Allowed_access: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE,
		Parent_fd:      int32(file),
	}
	if _, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("Landlock: %w", errno)
	}
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("Landlock: %w", errno)
	}
	return nil
}

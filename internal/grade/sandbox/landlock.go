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

const (
	everything = 1<<13 - 1 // every right on files that ABI 1 knows
	reading    = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	listing    = unix.LANDLOCK_ACCESS_FS_READ_DIR
	writing    = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
)

// landlock leaves of the file system the program itself, to be executed; or, with
// a folder, that one to write in and the whole to read.
func landlock(folder, program string) error {
	rights := uint64(everything)
	if abi := landlockABI(); abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
		if abi >= 3 {
			rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		}
	}
	ruleset := rights // struct landlock_ruleset_attr of ABI 1 is this one field
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleset)), unsafe.Sizeof(ruleset), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	rules := map[string]uint64{program: reading}
	if folder != "" {
		rules = map[string]uint64{"/": reading | listing, folder: (reading | listing | writing | unix.LANDLOCK_ACCESS_FS_TRUNCATE) & rights}
	}
	for path, access := range rules {
		if err := allow(fd, path, access); err != nil {
			return fmt.Errorf("landlock: %s: %w", path, err)
		}
	}
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

func allow(ruleset uintptr, path string, access uint64) error {
	file, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(file)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

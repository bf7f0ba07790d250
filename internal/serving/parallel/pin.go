package parallel

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning a worker to processor %d: %w", cpu, err)
	}
	return nil
}

// leaveProcessor moves the calling thread to another processor, if it may run on one.
func leaveProcessor() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil || allowed.Count() < 2 {
		return
	}
	here, err := processor()
	if err != nil {
		return
	}
	others := allowed
	others.Clear(here)
	if unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &allowed) // cannot fail: it was the mask before
	}
}

func processor() (int, error) {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return 0, fmt.Errorf("getcpu: %w", err)
	}
	return int(cpu), nil
}

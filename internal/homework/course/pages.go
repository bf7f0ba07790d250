package course

import (
	"syscall"
	"unsafe"
)

// mapPages returns size bytes of zeroed private memory from the kernel, or nil. It makes the system call itself,
// because syscall.Mmap keeps its mappings in a map on the Go heap.
func mapPages(size uintptr) unsafe.Pointer {
	if pagesFail {
		return nil
	}
	const noFD = ^uintptr(0)
	p, _, errno := syscall.RawSyscall6(syscall.SYS_MMAP, 0, size,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON, noFD, 0)
	if errno != 0 {
		return nil
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) // fresh memory, not a Go object
}

// pagesFail makes mapPages fail, for tests.
var pagesFail bool

func unmap(p unsafe.Pointer, size uintptr) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_MUNMAP, uintptr(p), size, 0)
}

package kvstore

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pageSize = 4096

// hugePage is the alignment of a mapping. With it, the kernel can use huge pages from the first byte on. Reading
// random blocks is faster from huge pages than from pages of 4 KiB.
const hugePage = 2 << 20

// machineMemory returns the memory of the machine in bytes, including swap space, or MaxUint64 if it is unknown.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxUint64
	}
	return (uint64(info.Totalram) + uint64(info.Totalswap)) * uint64(info.Unit)
}

// mapMemory maps size zeroed bytes, in huge pages if the system allows them. size must be a multiple of pageSize.
func mapMemory(size int) ([]byte, error) {
	if size <= 0 {
		return nil, nil
	}
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	skip := -uintptr(whole) & (hugePage - 1)
	start := unsafe.Add(whole, skip)
	trim(whole, skip)
	trim(unsafe.Add(start, size), hugePage-skip)
	memory := unsafe.Slice((*byte)(start), size)
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // fails where huge pages are off, which is only slower
	return memory, nil
}

func trim(start unsafe.Pointer, size uintptr) {
	if size > 0 {
		_ = unix.MunmapPtr(start, size)
	}
}

func unmapMemory(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(&memory[0]), uintptr(len(memory)))
}

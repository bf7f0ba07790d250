package kvstore

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageSize is what the start of each layer is rounded to.
const pageSize = 4096

// hugePage is what the start of a mapping is rounded to, so that the kernel can
// use huge pages from its first byte: reading random blocks is several times
// faster with them than with pages of 4 KB.
const hugePage = 2 << 20

// machineMemory is the bytes that the machine has, swap space included.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxUint64
	}
	return (uint64(info.Totalram) + uint64(info.Totalswap)) * uint64(info.Unit)
}

// mapMemory returns zeroed memory, in huge pages where the system allows.
func mapMemory(size int) ([]byte, error) {
	if size <= 0 {
		return nil, nil
	}
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	skip := -uintptr(whole) & (hugePage - 1)
	start := unsafe.Add(whole, skip)
	trim(whole, skip)
	end := (uintptr(size) + pageSize - 1) &^ (pageSize - 1)
	trim(unsafe.Add(start, end), hugePage-skip-(end-uintptr(size)))
	memory := unsafe.Slice((*byte)(start), size)
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // refused where they are off: only slower
	return memory, nil
}

// trim unmaps whole pages from start on.
func trim(start unsafe.Pointer, size uintptr) {
	if size &^= pageSize - 1; size > 0 {
		_ = unix.MunmapPtr(start, size)
	}
}

func unmapMemory(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(&memory[0]), uintptr(len(memory)))
}

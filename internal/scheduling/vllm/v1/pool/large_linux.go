package pool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// large returns an array of n elements. For an array so long that random accesses would miss the TLB, large asks the
// kernel for huge pages. It ignores a refusal, because the array then works too, only slower.
func large[T any](n int) []T {
	s := make([]T, n)
	size := uintptr(n) * unsafe.Sizeof(*new(T))
	if size < 4*hugePage {
		return s
	}
	start := uintptr(unsafe.Pointer(&s[0]))
	aligned := (start + hugePage - 1) &^ (hugePage - 1)
	whole := (start + size - aligned) &^ (hugePage - 1)
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&s[0]), aligned-start)), whole), unix.MADV_HUGEPAGE)
	return s
}

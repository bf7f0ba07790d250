package block

import "unsafe"

// firstZeroPortable returns the index of the first 0 in counts, or len(counts) if there is none. It loads two
// counts at a time, because the compiler does not vectorize a loop with an early exit.
func firstZeroPortable(counts []int32) int {
	n := len(counts)
	if n == 0 {
		return 0
	}
	base := unsafe.Pointer(&counts[0])
	i := 0
	for ; i+2 <= n; i += 2 {
		pair := *(*[2]uint32)(unsafe.Add(base, uintptr(i)*4))
		if pair[0] == 0 {
			return i
		}
		if pair[1] == 0 {
			return i + 1
		}
	}
	if i < n && counts[i] == 0 {
		return i
	}
	return n
}

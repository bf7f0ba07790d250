package block

// lane is how many counts one round of firstZeroAVX2 looks at.
const lane = 32

var hasAVX2 = detectAVX2()

// firstZero returns the index of the first 0 in counts, or len(counts).
func firstZero(counts []int32) int {
	whole := len(counts) &^ (lane - 1)
	if whole == 0 || !hasAVX2 {
		return firstZeroPortable(counts)
	}
	if i := firstZeroAVX2(&counts[0], whole); i < whole {
		return i
	}
	return whole + firstZeroPortable(counts[whole:])
}

// firstZeroAVX2 returns the index of the first 0 among n counts at p, or n.
// n is a positive multiple of lane. It never reads past the last count, so
// Memcheck has nothing to say about it.
//
//go:noescape
func firstZeroAVX2(p *int32, n int) int

func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

func xgetbv() (eax, edx uint32)

// detectAVX2 asks the processor, and whether the kernel saves the wide
// registers (Intel SDM vol. 1, 14.7.1).
func detectAVX2() bool {
	const osxsave, avx, xmmYmm, avx2 = 1 << 27, 1 << 28, 6, 1 << 5
	maxLeaf, _, _, _ := cpuid(0, 0)
	if maxLeaf < 7 {
		return false
	}
	_, _, ecx, _ := cpuid(1, 0)
	if ecx&osxsave == 0 || ecx&avx == 0 {
		return false
	}
	if saved, _ := xgetbv(); saved&xmmYmm != xmmYmm {
		return false
	}
	_, ebx, _, _ := cpuid(7, 0)
	return ebx&avx2 != 0
}

package block

// The assembly reads a multiple of lane counts: 64 in each iteration of the loop of firstZeroAVX512, and 32 in that of
// firstZeroAVX2.
const lane = 64

// width is the widest scan that the processor and the operating system support.
var width = detectWidth()

const (
	portable = iota
	wide256
	wide512
)

// firstZero returns the index of the first 0 in counts, or len(counts) if there is none. It never reads past the
// last count, so Memcheck does not report it.
func firstZero(counts []int32) int {
	whole := len(counts) &^ (lane - 1)
	if whole == 0 || width == portable {
		return firstZeroPortable(counts)
	}
	var i int
	if width == wide512 {
		i = firstZeroAVX512(&counts[0], whole)
	} else {
		i = firstZeroAVX2(&counts[0], whole)
	}
	if i < whole {
		return i
	}
	return whole + firstZeroPortable(counts[whole:])
}

// firstZeroAVX2 returns the index of the first 0 among n counts at p, or n.
// n is a positive multiple of lane.
//
//go:noescape
func firstZeroAVX2(p *int32, n int) int

// firstZeroAVX512 does the same with registers twice as wide.
//
//go:noescape
func firstZeroAVX512(p *int32, n int) int

func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

func xgetbv() (eax, edx uint32)

// detectWidth returns the widest vectors that the processor and the operating system support. The operating system must
// save the registers of these vectors (Intel SDM vol. 1, 14.7.1 and 15.3).
func detectWidth() int {
	const (
		osxsave, avx  = 1 << 27, 1 << 28
		avx2, avx512f = 1 << 5, 1 << 16
		ymm, zmm      = 0x06, 0xe6
	)
	if maxLeaf, _, _, _ := cpuid(0, 0); maxLeaf < 7 {
		return portable
	}
	_, _, ecx, _ := cpuid(1, 0)
	if ecx&osxsave == 0 || ecx&avx == 0 {
		return portable
	}
	saved, _ := xgetbv()
	_, ebx, _, _ := cpuid(7, 0)
	switch {
	case ebx&avx512f != 0 && saved&zmm == zmm:
		return wide512
	case ebx&avx2 != 0 && saved&ymm == ymm:
		return wide256
	}
	return portable
}

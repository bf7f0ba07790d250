package benchtest

import "github.com/klauspost/cpuid/v2"

//go:noescape
func readAVX512(p *byte, n int)

//go:noescape
func readAVX2(p *byte, n int)

func multiplyAVX512(n int)

func multiplyAVX2(n int)

var (
	avx512 = cpuid.CPU.Supports(cpuid.AVX512F)
	avx2   = cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3)
)

// Read reads all bytes of p, as fast as it can, and adds them up as float32 values. On a processor without AVX2, it
// reads only one byte of every 64. The length of p must be a multiple of 512, and above 0.
func Read(p []byte) {
	switch {
	case avx512:
		readAVX512(&p[0], len(p))
	case avx2:
		readAVX2(&p[0], len(p))
	default:
		readPortable(p)
	}
}

// Multiply does rounds of multiplications and additions. It returns the number of floating-point operations.
func Multiply(rounds int) (operations int) {
	switch {
	case avx512:
		multiplyAVX512(rounds)
		return rounds * 24 * 16 * 2
	case avx2:
		multiplyAVX2(rounds)
		return rounds * 24 * 8 * 2
	}
	return multiplyPortable(rounds)
}

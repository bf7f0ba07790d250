//go:build amd64 && !purego

package matrix

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"
)

type instructions uint8

const (
	portable instructions = iota
	avx2
	avx512
)

// isa is the best instruction set that the processor has. Tests change it.
var isa = best()

func best() instructions {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasFMA:
		return avx512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA: // every processor with AVX2 has F16C
		return avx2
	}
	return portable
}

// Kernels names the instruction set in use.
func Kernels() string { return [...]string{"portable", "AVX2", "AVX-512"}[isa] }

// hasBF16 reports whether the processor can multiply pairs of BF16 with AVX-512. Tests set it to false.
var hasBF16 = cpu.X86.HasAVX512BF16

func paired() bool { return isa == avx512 && hasBF16 && pairsAreFast() }

// direct512 is the largest number of rows that AVX-512 kernels multiply without packing the rows in groups first.
const direct512 = 4

const tileRows = 6

// maxDirectRows returns the largest number of rows that kernels multiply directly by packed weights of type t. With
// AVX-512, more rows are packed in groups, and other kernels multiply them. Without AVX-512, a slab of weights is
// decoded first, unless t is F32. Types that round activations to 8 bits have other kernels.
func maxDirectRows(t Type) int {
	switch {
	case isa == avx512:
		return direct512
	case isa == avx2 && (t == F16 || t == BF16):
		return 1
	}
	return 0
}

type kernel func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, k uintptr)

type tileKernel func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, prefetchAddr, k uintptr)

type blockKernel func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks, block uintptr)

type tableKernel func(dst *float32, dstStride uintptr, x *float32, xStride uintptr, w *byte, blocks, block uintptr,
	table *float32)

type decodeKernel func(dst *float32, w *byte, blocks, block uintptr)

var (
	tiles2    = [...]tileKernel{tileAVX2x1, tileAVX2x2, tileAVX2x3, tileAVX2x4, tileAVX2x5, tileAVX2x6}
	floats512 = [...][4]kernel{
		F32:  {mulF32AVX512x1, mulF32AVX512x2, mulF32AVX512x3, mulF32AVX512x4},
		F16:  {mulF16AVX512x1, mulF16AVX512x2, mulF16AVX512x3, mulF16AVX512x4},
		BF16: {mulBF16AVX512x1, mulBF16AVX512x2, mulBF16AVX512x3, mulBF16AVX512x4},
	}
	table512 = [...]tableKernel{mulTable4AVX512x1, mulTable4AVX512x2, mulTable4AVX512x3, mulTable4AVX512x4}

	blocks512 = [...][4]blockKernel{
		Int8:     {mulInt8AVX512x1, mulInt8AVX512x2, mulInt8AVX512x3, mulInt8AVX512x4},
		Int4:     {mulInt4AVX512x1, mulInt4AVX512x2, mulInt4AVX512x3, mulInt4AVX512x4},
		Int8Min:  {mulInt8MinAVX512x1, mulInt8MinAVX512x2, mulInt8MinAVX512x3, mulInt8MinAVX512x4},
		Int8K:    {mulInt8KAVX512x1, mulInt8KAVX512x2, mulInt8KAVX512x3, mulInt8KAVX512x4},
		Int8KMin: {mulInt8KMinAVX512x1, mulInt8KMinAVX512x2, mulInt8KMinAVX512x3, mulInt8KMinAVX512x4},
		Int4K:    {mulInt4KAVX512x1, mulInt4KAVX512x2, mulInt4KAVX512x3, mulInt4KAVX512x4},
		Int4F:    {mulInt4FAVX512x1, mulInt4FAVX512x2, mulInt4FAVX512x3, mulInt4FAVX512x4},
		E4M3:     {mulE4M3AVX512x1, mulE4M3AVX512x2, mulE4M3AVX512x3, mulE4M3AVX512x4},
	}
	decode512 = [...]decodeKernel{
		Int8: decodeInt8AVX512, Int4: decodeInt4AVX512, Int8Min: decodeInt8MinAVX512, Int8K: decodeInt8KAVX512,
		Int8KMin: decodeInt8KMinAVX512, Int4K: decodeInt4KAVX512, Int4F: decodeInt4FAVX512, E4M3: decodeE4M3AVX512,
	}
	decode2 = [...]decodeKernel{
		Int8: decodeInt8AVX2, Int4: decodeInt4AVX2, Int8Min: decodeInt8MinAVX2, Int8K: decodeInt8KAVX2,
		Int8KMin: decodeInt8KMinAVX2, Int4K: decodeInt4KAVX2, Int4F: decodeInt4FAVX2, E4M3: decodeE4M3AVX2,
	}
)

// multiply sets dst to the products of rows of x and n inputs of a panel, whose packed weights are at w. The number of
// rows must not exceed maxDirectRows.
func (m *Matrix) multiply(dst *float32, dstStride int, x *float32, rows int, w *byte, n int) {
	dstBytes, xBytes, k, kind := uintptr(dstStride*4), uintptr(m.In*4), uintptr(n), m.kernels()
	switch {
	case isa == avx512 && kind.bits() == 0:
		floats512[kind][rows-1](dst, dstBytes, x, xBytes, w, k)
	case kind == F16:
		mulF16AVX2(dst, x, w, k)
	case kind == BF16:
		mulBF16AVX2(dst, x, w, k)
	case kind == NL4 || kind == FP4:
		table512[rows-1](dst, dstBytes, x, xBytes, w, k/uintptr(m.Unit()), uintptr(m.Block), &m.Type.Table()[0])
	default:
		blocks512[m.Type][rows-1](dst, dstBytes, x, xBytes, w, k/uintptr(m.Unit()), uintptr(m.Block))
	}
}

func (m *Matrix) decode(dst *float32, p, k, n int) {
	w, blocks, block := &m.data[p*m.panelBytes+m.bytesOf(k)], uintptr(n/m.Unit()), uintptr(m.Block)
	kind := m.kernels()
	table := kind == NL4 || kind == FP4
	switch {
	case isa == portable:
		m.portableDecode(dst, p, k, n)
	case kind == F16 && isa == avx512:
		decodeF16AVX512(dst, w, uintptr(n))
	case kind == BF16 && isa == avx512:
		decodeBF16AVX512(dst, w, uintptr(n))
	case kind == F16:
		decodeF16AVX2(dst, w, uintptr(n))
	case kind == BF16:
		decodeBF16AVX2(dst, w, uintptr(n))
	case table && isa == avx512:
		decodeTable4AVX512(dst, w, blocks, block, &m.Type.Table()[0])
	case table:
		decodeTable4AVX2(dst, w, blocks, block, &m.Type.Table()[0])
	case isa == avx512:
		decode512[m.Type](dst, w, blocks, block)
	default:
		decode2[m.Type](dst, w, blocks, block)
	}
}

// tile adds to dst the products of rows of x and a slab of f32 weights for k inputs. A kernel computes 16 outputs. It
// multiplies one input after the other, and prefetches one cache line for each input. The first line of the first
// kernel is at prefetchAddr. All other lines follow without gaps. The lines may be after the end of the weights.
func tile(dst *float32, dstStride int, x *float32, xStride int, w *byte, prefetchAddr uintptr, k, rows int) {
	switch isa {
	case avx2:
		for c := 0; c < Panel; c += 16 {
			tiles2[rows-1](add(dst, c), uintptr(dstStride*4), x, uintptr(xStride*4),
				(*byte)(unsafe.Add(unsafe.Pointer(w), c*4)), prefetchAddr, uintptr(k))
			prefetchAddr += uintptr(k * prefetchBytes)
		}
	default:
		portableTile(dst, dstStride, x, xStride, w, k, rows)
	}
}

// shortsOf rounds the first n values of x to BF16, stores them in dst as float32 numbers, and returns n. The kernel
// handles 16 values at a time, so n is the largest multiple of 16 up to len(x). If there is no kernel, n is 0.
func shortsOf(dst, x []float32) int {
	return rounding(roundAVX2, dst, x, 1)
}

// pairsOf is like shortsOf, but writes pairs of BF16.
func pairsOf(dst, x []float32) int { return rounding(roundPairsAVX2, dst, x, 2) }

func rounding(kernel func(dst, x *float32, n uintptr), dst, x []float32, perOutput int) int {
	n := len(x) &^ 15
	if isa == portable || n == 0 {
		return 0
	}
	kernel(&dst[:n/perOutput][0], &x[0], uintptr(n))
	return n
}

// addPanels adds x to sums if there is a kernel for this. It returns the number of values that it added: all or
// none.
func addPanels(sums, x []float32) int {
	if isa == portable || len(sums) == 0 {
		return 0
	}
	addAVX2(&sums[0], &x[0], uintptr(len(sums)))
	return len(sums)
}

// exp replaces each of the first n values v of x by exp((v − top) × scale), and returns n. The kernel handles 16 values
// at a time, so n is the largest multiple of 16 up to len(x). If there is no kernel, n is 0.
func exp(x []float32, top, scale float32) int {
	n := len(x) &^ 15
	if isa != avx512 || n == 0 {
		return 0
	}
	expAVX512(&x[0], uintptr(n), top, scale)
	return n
}

// largest returns n, and the largest of the first n values of x. The kernel handles 64 values at a time, so n is the
// largest multiple of 64 up to len(x). If there is no kernel, n is 0.
func largest(x []float32) (n int, top float32) {
	n = len(x) &^ 63
	if isa != avx512 || n == 0 {
		return 0, float32(math.Inf(-1))
	}
	return n, largestAVX512(&x[0], uintptr(n))
}

// siluMul computes SiLUMul with AVX-512 and returns the number of values. Without AVX-512 it returns 0. The kernel
// computes 16 values at a time. If fewer remain, siluMul copies them into an array of 16. So the kernel computes every
// value, and the bits of a value do not depend on its index.
func siluMul(dst, gate, factor []float32) int {
	n := len(gate) &^ 15
	if isa != avx512 {
		return 0
	}
	_, _ = dst[:len(gate)], factor[:len(gate)]
	if n > 0 {
		siluMulAVX512(&dst[0], &gate[0], &factor[0], uintptr(n))
	}
	if n < len(gate) {
		var result, lastGate, lastFactor [16]float32
		copy(lastGate[:], gate[n:])
		copy(lastFactor[:], factor[n:])
		siluMulAVX512(&result[0], &lastGate[0], &lastFactor[0], 16)
		copy(dst[n:], result[:len(gate)-n])
	}
	return len(gate)
}

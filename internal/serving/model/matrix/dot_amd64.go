//go:build amd64 && !purego

package matrix

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVNNI reports whether AVX-512 multiplies bytes. Tests turn it off.
var hasVNNI = cpu.X86.HasAVX512VNNI

// quantize rounds a row to 8 bits and sets its steps, if there is a kernel for this. It reports whether there is.
func quantize(q []int8, steps32, steps16 []step, x []float32) bool {
	switch isa {
	case avx512:
		quantizeAVX512(&q[0], word(&steps32[0]), word(&steps16[0]), &x[0], uintptr(len(steps32)))
	case avx2:
		quantizeAVX2(&q[0], word(&steps32[0]), word(&steps16[0]), &x[0], uintptr(len(steps32)))
	}
	return isa != portable
}

func word(s *step) *uint64 { return (*uint64)(unsafe.Pointer(s)) }

type dotKernel func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte,
	wStride uintptr, scales *byte, scalesStride uintptr, blocks, quads, shift, minima uintptr)

type dotKernel512 func(dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, offset uintptr, x *int8, xStride uintptr,
	steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride uintptr,
	prefetchAddr, prefetchStep, blocks, quads, shift, minima uintptr)

type rowKernel func(dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, offset uintptr, x *int8, steps *uint64,
	w *byte, blocks, groups, shift, minima uintptr, table *byte)

type unpackKernel func(dst, w *byte, wStride, blocks, groups uintptr, table *byte)

var (
	// By packing.
	rows512 = [...]rowKernel{dotRowTable4AVX512, dotRowInt4AVX512, dotRowInt5AVX512, dotRowInt6AVX512, dotRowInt8AVX512}

	// By packing, up to 6 bits.
	unpack512 = [...]unpackKernel{unpackTable4AVX512, unpackInt4AVX512, unpackInt5AVX512, unpackInt6AVX512}
	unpack2   = [...]unpackKernel{unpackTable4AVX2, unpackInt4AVX2, unpackInt5AVX2, unpackInt6AVX2}

	dots512 = [...]dotKernel512{nil, dotAVX512x2, dotAVX512x3, dotAVX512x4, dotAVX512x5, dotAVX512x6}
	int8x2  = [...]dotKernel{dotInt8AVX2x1, dotInt8AVX2x2, dotInt8AVX2x3, dotInt8AVX2x4}
	int4x2  = [...]dotKernel{dotInt4AVX2x1, dotInt4AVX2x2, dotInt4AVX2x3, dotInt4AVX2x4}
)

// A dotPart has the arguments of the kernels that multiply rows of x by the inputs [k, k+n) of a panel. The panel's
// weights are bytes, or were unpacked to bytes.
type dotPart struct {
	m         *Matrix
	x         *Input
	k, n      int
	w, scales *byte
	skip      int // bytes between the weights of two blocks
	size      int // bytes from the scales of a block to those of the next
}

// dotPart returns the arguments for the product of x with the inputs [k, k+n) of panel p. For weights of less than 8
// bits, kernels read the bytes in s.bytes[offset:]. If unpack is true, dotPart unpacks the weights to these bytes;
// otherwise an earlier call must have done so.
func (m *Matrix) dotPart(x *Input, p, k, n int, s *Scratch, offset int, unpack bool) dotPart {
	d := dotPart{m: m, x: x, k: k, n: n, size: m.bytesOf(m.Block), skip: m.Type.scaleBytes()}
	weights := m.data[p*m.panelBytes+m.bytesOf(k):]
	d.scales, d.w = &weights[0], &weights[d.skip]
	if m.Type.bits() == 8 {
		return d
	}
	s.bytes = grow(s.bytes, offset+n*Panel)
	bytes := &s.bytes[offset]
	kernels := &unpack2
	if isa == avx512 {
		kernels = &unpack512
	}
	if unpack {
		kernels[m.Type.packing()](bytes, d.w, uintptr(d.skip), uintptr(n/m.Block), uintptr(m.Block/m.Type.group()),
			&byteTables[m.Type][0])
	}
	d.w, d.skip = bytes, 0
	return d
}

// dotSlab adds to sums the products of the rounded rows of x and the inputs [k, k+n) of panel p.
func (m *Matrix) dotSlab(sums []float32, x *Input, p, k, n int, s *Scratch) {
	if isa == portable {
		m.portableDot(sums, x, p, k, n)
		return
	}
	part := m.dotPart(x, p, k, n, s, 0, true)
	part.multiply2(sums)
}

// packing returns the index of a type's kernels in rows512, unpack512 and unpack2. Index 0 is for types with a table.
// The next indices are for integers of 4, 5, 6 and 8 bits. unpack512 and unpack2 have no kernels for 8 bits, which need
// no unpacking.
func (t Type) packing() int {
	switch {
	case t.Table() != nil:
		return 0
	case t.bits() == 8:
		return len(rows512) - 1
	}
	return t.bits() - 3
}

// byteTables has the tables of the types that have one, as bytes: the type's offset is added to each number.
var byteTables = [...][16]byte{NL4A8: unsigned(NL4A8), FP4A8: unsigned(FP4A8)}

func unsigned(t Type) (bytes [16]byte) {
	for i, v := range t.Table() {
		bytes[i] = byte(int32(v) + kinds[t].offset)
	}
	return bytes
}

// rows returns the addresses of the activations and of the steps of row r for input d.k. stride is the distance in
// bytes between the steps of consecutive rows.
func (d *dotPart) rows(r int) (q *int8, steps *uint64, stride uintptr) {
	blocks, x := d.m.In/d.m.Block, &d.x.rounded
	return &x.q[r*x.stride+d.k], word(&x.steps(d.m.Block)[r*blocks+d.k/d.m.Block]), uintptr(blocks) * unsafe.Sizeof(step{})
}

// offset returns the arguments shift and minima of kernels. The type of the matrix has either an offset of the weights
// or minima. If it has an offset, shift is the base-2 logarithm of the offset, and minima is 0. If it has minima, shift
// is 32, and minima is 1.
//
// A kernel corrects for the offset by shifting 32-bit integers to the left by shift bits. A shift by 32 bits makes the
// correction 0.
func (d *dotPart) offset() (shift, minima uintptr) {
	if d.m.Type.hasMinimum() {
		return 32, 1
	}
	return uintptr(bits.TrailingZeros32(uint32(kinds[d.m.Type].offset))), 0
}

func (g *rowGroup) dot512(sums sumAddresses, k, n int) {
	m, offset := g.m, 0
	if g.groups > 1 {
		offset = k * Panel
	}
	d := m.dotPart(g.x, g.p, k, n, g.s, offset, g.index == 0)
	shift, minima := d.offset()
	prefetchAddr, bytesPerTile := g.prefetch(k, n)
	g.tiles(len(dots512), sums, func(r, rows int, sums sumAddresses) {
		q, steps, stride := d.rows(r)
		dots512[rows-1](sums.dst, sums.stride, sums.initial, sums.addend1, sums.addend2, 0, q, uintptr(g.x.rounded.stride), steps, stride,
			d.w, uintptr(d.skip), d.scales, uintptr(d.size), prefetchAddr, bytesPerTile*2/uintptr(n)+1, uintptr(n/m.Block),
			uintptr(m.Block/4), shift, minima)
		prefetchAddr += bytesPerTile
	})
}

func (g *rowGroup) dotRow(sums sumAddresses, k, n int) {
	m := g.m
	d := dotPart{m: m, x: g.x, k: k}
	q, steps, _ := d.rows(0)
	shift, minima := d.offset()
	rows512[m.Type.packing()](sums.dst, 0, nil, sums.addend1, sums.addend2, 0, q, steps,
		&m.data[g.p*m.panelBytes+m.bytesOf(k)], uintptr(n/m.Block), uintptr(m.Block/m.Type.group()), shift, minima,
		&byteTables[m.Type][0])
}

func (d *dotPart) multiply2(sums []float32) {
	m, kernels := d.m, &int8x2
	if m.Type.bits() == 4 && m.Type.Table() == nil {
		kernels = &int4x2 // a block's products fit into 16 bits
	}
	shift, minima := d.offset()
	for r := 0; r < d.x.rows; r += len(kernels) {
		q, steps, stride := d.rows(r)
		for c := 0; c < Panel; c += 16 {
			w, scales := (*byte)(unsafe.Add(unsafe.Pointer(d.w), c*4)), (*byte)(unsafe.Add(unsafe.Pointer(d.scales), c*2))
			kernels[min(len(kernels), d.x.rows-r)-1](&sums[r*Panel+c], q, uintptr(d.x.rounded.stride), steps, stride, w, uintptr(d.skip),
				scales, uintptr(d.size), uintptr(d.n/m.Block), uintptr(m.Block/4), shift, minima)
		}
	}
}

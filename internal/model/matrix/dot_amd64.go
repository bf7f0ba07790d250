//go:build amd64 && !purego

package matrix

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vnni means that AVX-512 multiplies bytes; tests turn it off.
var vnni = cpu.X86.HasAVX512VNNI

// quantize rounds a row to 8 bits and reports whether it did.
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

type dotKernel512 func(sums *float32, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte,
	wStride uintptr, scales *byte, scalesStride uintptr, ahead, aheadStep, blocks, quads, shift, minima, halves uintptr)

type rowKernel func(sums *float32, x *int8, steps *uint64, w *byte, blocks, groups, shift, minima uintptr, table *byte)

type unpackKernel func(dst, w *byte, wStride, blocks, groups uintptr, table *byte)

var (
	// By packing.
	rows512 = [...]rowKernel{dotRowTable4AVX512, dotRowInt4AVX512, dotRowInt5AVX512, dotRowInt6AVX512, dotRowInt8AVX512}

	// By packing, up to 6 bits.
	unpack512 = [...]unpackKernel{unpackTable4AVX512, unpackInt4AVX512, unpackInt5AVX512, unpackInt6AVX512}
	unpack2   = [...]unpackKernel{unpackTable4AVX2, unpackInt4AVX2, unpackInt5AVX2, unpackInt6AVX2}

	dot512 = [...]dotKernel512{nil, dotAVX512x2, dotAVX512x3, dotAVX512x4, dotAVX512x5, dotAVX512x6}
	int8x2 = [...]dotKernel{dotInt8AVX2x1, dotInt8AVX2x2, dotInt8AVX2x3, dotInt8AVX2x4}
	int4x2 = [...]dotKernel{dotInt4AVX2x1, dotInt4AVX2x2, dotInt4AVX2x3, dotInt4AVX2x4}
)

// A dotPart is a slab of a panel for kernels: n inputs from k on, of which the weights are bytes.
type dotPart struct {
	m          *Matrix
	x          *Input
	k, n       int
	w, scales  *byte
	skip, size int // bytes from the end of a block's weights to the next, and from scales to the next
}

// dotSlab adds the product of the rounded rows of x and n inputs of a panel from k on to sums.
func (m *Matrix) dotSlab(sums []float32, x *Input, p, k, n int, s *Scratch) {
	if isa == portable {
		m.portableDot(sums, x, p, k, n)
		return
	}
	d := dotPart{m: m, x: x, k: k, n: n, size: m.bytesOf(m.Block), skip: m.Type.scaleBytes()}
	at := m.data[p*m.panelBytes+m.bytesOf(k):]
	d.scales, d.w = &at[0], &at[d.skip]
	wide := isa == avx512 && vnni
	if m.Type.bits() != 8 {
		kernels := &unpack2
		if wide {
			kernels = &unpack512
		}
		kernels[m.Type.packing()](&s.bytes[0], d.w, uintptr(d.skip), uintptr(n/m.Block), uintptr(m.Block/m.Type.group()),
			&numbers[m.Type][0])
		d.w, d.skip = &s.bytes[0], 0
	}
	if wide {
		d.multiply512(sums)
	} else {
		d.multiply2(sums)
	}
}

// packing is the index of a type's kernels: for places in a table, 4, 5, 6 and 8 bits.
func (t Type) packing() int {
	switch {
	case t.Table() != nil:
		return 0
	case t.bits() == 8:
		return len(rows512) - 1
	}
	return t.bits() - 3
}

// dotRow adds the product of the rounded row of x and the inputs from up to to of a panel to sums. It reports whether
// there is a kernel for that.
func (m *Matrix) dotRow(sums []float32, x *Input, p, from, to int) bool {
	if isa != avx512 || !vnni {
		return false
	}
	d := dotPart{m: m, x: x, k: from}
	q, steps, _ := d.rows(0)
	shift, minima := d.offset()
	rows512[m.Type.packing()](&sums[0], q, steps, &m.data[p*m.panelBytes+m.bytesOf(from)], uintptr((to-from)/m.Block),
		uintptr(m.Block/m.Type.group()), shift, minima, &numbers[m.Type][0])
	return true
}

// numbers has the tables of types, with the offset added to each number.
var numbers = [...][16]byte{NL4A8: unsigned(NL4A8), FP4A8: unsigned(FP4A8)}

func unsigned(t Type) (bytes [16]byte) {
	for i, v := range t.Table() {
		bytes[i] = byte(int32(v) + t.offset())
	}
	return bytes
}

// rows has the activations of row r, and their steps with the bytes from one row to the next.
func (d *dotPart) rows(r int) (q *int8, steps *uint64, stride uintptr) {
	blocks, x := d.m.In/d.m.Block, &d.x.rounded
	return &x.q[r*d.m.In+d.k], word(&x.of(d.m.Block)[r*blocks+d.k/d.m.Block]), uintptr(blocks) * unsafe.Sizeof(step{})
}

// offset is what was added to the weights, as a power of 2, and whether they have minima instead: then
// the power is one that shifts everything out of 32 bits.
func (d *dotPart) offset() (shift, minima uintptr) {
	if d.m.Type.least() {
		return 32, 1
	}
	return uintptr(bits.TrailingZeros32(uint32(d.m.Type.offset()))), 0
}

// multiply512 computes about equally many rows in each call of a kernel, and prefetches the weights that
// come next.
func (d *dotPart) multiply512(sums []float32) {
	m := d.m
	shift, minima := d.offset()
	rows, bytes := d.x.rows, m.bytesOf(d.n)
	tiles := (rows + len(dot512) - 1) / len(dot512)
	ahead, share := uintptr(unsafe.Pointer(d.scales))+uintptr(bytes), bytes/tiles
	for t := range tiles {
		r, end := rows*t/tiles, rows*(t+1)/tiles
		q, steps, stride := d.rows(r)
		dot512[end-r-1](&sums[r*Panel], q, uintptr(m.In), steps, stride, d.w, uintptr(d.skip), d.scales, uintptr(d.size),
			ahead+uintptr(t*share), uintptr(share*2/d.n+1), uintptr(d.n/m.Block), uintptr(m.Block/4), shift, minima, 2)
	}
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
			kernels[min(len(kernels), d.x.rows-r)-1](&sums[r*Panel+c], q, uintptr(m.In), steps, stride, w, uintptr(d.skip),
				scales, uintptr(d.size), uintptr(d.n/m.Block), uintptr(m.Block/4), shift, minima)
		}
	}
}

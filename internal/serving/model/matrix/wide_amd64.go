//go:build amd64 && !purego

package matrix

import "unsafe"

// maxWideRows is the largest number of rows of a packed group. No kernel for packed rows multiplies more rows at a
// time.
const maxWideRows = 24

// maxWideBlockRows is the largest number of rows that a kernel multiplies by weights in blocks. Such a kernel for 24
// rows was less than 5 % faster than decoding the blocks first.
const maxWideBlockRows = 20

// groupOf returns the size of the groups in which the rows of an Input are packed. rows is the number of all rows of
// the Input. groupOf returns 0 if kernels read the rows without groups: without AVX-512, or if there are few rows.
func groupOf(rows int) int {
	if isa != avx512 || rows <= direct512 {
		return 0
	}
	groups := (rows + maxWideRows - 1) / maxWideRows
	return kernelRows((rows + groups - 1) / groups)
}

// kernelRows returns the number of rows of the smallest kernel that can multiply the given number of rows.
func kernelRows(rows int) int { return max(8, (rows+3)&^3) }

type wideKernel func(sums, x *float32, w *byte, prefetchAddr, prefetchStep, k uintptr)

type wideBlocksKernel func(sums, x *float32, w *byte, prefetchAddr, prefetchStep, blocks, block uintptr)

type wideTableKernel func(sums, x *float32, w *byte, prefetchAddr, prefetchStep, blocks, block uintptr, table *float32)

// Kernels for 8, 12, 16, 20 and 24 rows. Kernels that read blocks exist only for up to maxWideBlockRows.
var (
	wideKernels = [...][5]wideKernel{
		F32:  {wideF32AVX512x8, wideF32AVX512x12, wideF32AVX512x16, wideF32AVX512x20, wideF32AVX512x24},
		F16:  {wideF16AVX512x8, wideF16AVX512x12, wideF16AVX512x16, wideF16AVX512x20, wideF16AVX512x24},
		BF16: {wideBF16AVX512x8, wideBF16AVX512x12, wideBF16AVX512x16, wideBF16AVX512x20, wideBF16AVX512x24},
	}
	wideTableKernels = [...]wideTableKernel{wideTable4AVX512x8, wideTable4AVX512x12, wideTable4AVX512x16,
		wideTable4AVX512x20}
	wideBlocksKernels = [...][4]wideBlocksKernel{
		Int8:     {wideInt8AVX512x8, wideInt8AVX512x12, wideInt8AVX512x16, wideInt8AVX512x20},
		Int4:     {wideInt4AVX512x8, wideInt4AVX512x12, wideInt4AVX512x16, wideInt4AVX512x20},
		Int8Min:  {wideInt8MinAVX512x8, wideInt8MinAVX512x12, wideInt8MinAVX512x16, wideInt8MinAVX512x20},
		Int8K:    {wideInt8KAVX512x8, wideInt8KAVX512x12, wideInt8KAVX512x16, wideInt8KAVX512x20},
		Int8KMin: {wideInt8KMinAVX512x8, wideInt8KMinAVX512x12, wideInt8KMinAVX512x16, wideInt8KMinAVX512x20},
		Int4F:    {wideInt4FAVX512x8, wideInt4FAVX512x12, wideInt4FAVX512x16, wideInt4FAVX512x20},
		E4M3:     {wideE4M3AVX512x8, wideE4M3AVX512x12, wideE4M3AVX512x16, wideE4M3AVX512x20},
		Int4K:    {wideInt4KAVX512x8, wideInt4KAVX512x12, wideInt4KAVX512x16, wideInt4KAVX512x20},
	}
)

// wide adds to sums the products of the packed rows of x and the inputs [start, end) of panel p. sums has 64 values a
// row. wide multiplies all rows by a slab of weights before the next slab, so the slab stays in the first-level cache.
//
// Kernels decode the weights of the slab for each group of rows. If this would take longer than decoding the slab once,
// wide decodes the slab first, and the kernels read floats. wide also decodes the slab first if a group has more than
// maxWideBlockRows rows and the weights are in blocks.
func (m *Matrix) wide(sums []float32, x *words, p, start, end int, s *Scratch) {
	groups := x.groups()
	for k := start; k < end; k += m.slab() {
		n := min(m.slab(), end-k)
		w, kind := &m.data[p*m.panelBytes+m.bytesOf(k)], m.kernels()
		nextWeights := uintptr(unsafe.Pointer(w)) + uintptr(m.bytesOf(n))
		if groups > 2 && kind != F32 || m.Block != 0 && (groups > 1 || x.group > maxWideBlockRows) {
			m.decode(&s.slab[0], p, k, n)
			w, kind = (*byte)(unsafe.Pointer(&s.slab[0])), F32
		}
		for g := range groups {
			prefetchAddr, prefetchStep := m.prefetch(x, nextWeights, g, k, n)
			groupSums, groupX, size := &sums[g*x.group*Panel], x.address(g, k), x.size(g)
			blocks, block, kernel := uintptr(n/m.Unit()), uintptr(m.Block), size/4-2
			switch {
			case kind.bits() == 0:
				wideKernels[kind][kernel](groupSums, groupX, w, prefetchAddr, prefetchStep, uintptr(n))
			case kind == NL4 || kind == FP4:
				wideTableKernels[kernel](groupSums, groupX, w, prefetchAddr, prefetchStep, blocks, block, &kind.Table()[0])
			default:
				wideBlocksKernels[kind][kernel](groupSums, groupX, w, prefetchAddr, prefetchStep, blocks, block)
			}
		}
	}
}

// prefetch returns two arguments of the kernel that multiplies n inputs for group g. In each iteration, this kernel
// prefetches the cache line at prefetchAddr and adds prefetchStep to this address.
//
// If there is one group, the kernel prefetches the weights at nextWeights, which are multiplied next. If there are two
// groups, the kernel of each group prefetches half of these weights. If there are more groups, the kernel prefetches
// the values of the next group; for the last group, these are the values of the first. The weights then need no
// prefetches: they are few compared with the values, and they are read sequentially, so the processor prefetches them
// by itself.
func (m *Matrix) prefetch(x *words, nextWeights uintptr, g, k, n int) (prefetchAddr, prefetchStep uintptr) {
	size, groups := x.size(g), x.groups()
	if groups > 2 {
		return uintptr(unsafe.Pointer(x.address((g+1)%groups, k))), uintptr(size*4/passes(size) + 1)
	}
	share, times := m.bytesOf(n)/groups, n*passes(size)
	if m.Type.bits() == 4 && groups == 1 {
		times /= 2 // the kernel takes two k at a time
	}
	return nextWeights + uintptr(g*share), uintptr(share/times + 1)
}

func passes(rows int) int {
	if rows <= 12 {
		return 2
	}
	return 4
}

// gather packs the first n values of each of 4 rows, and returns n. The kernel handles 16 values at a time, so n is the
// largest multiple of 16 up to the length of a row.
func gather(dst []float32, stride int, rows *[4][]float32) int {
	n := len(rows[0]) &^ 15
	if n > 0 {
		_ = dst[(n-1)*stride+3]
		gather4AVX512(&dst[0], uintptr(stride*4), &rows[0][0], &rows[1][0], &rows[2][0], &rows[3][0], uintptr(n))
	}
	return n
}

//go:build amd64 && !purego

package matrix

import "unsafe"

// maxGroupRows is the largest number of rows of a group. Kernels multiply all rows of a group by the weights of some
// inputs before they read the weights of the next inputs. Meanwhile the sums of 48 rows, 48 × 64 × 4 bytes, stay in the
// first-level cache.
const maxGroupRows = 48

// pairInputs is the largest number of inputs of W16A16 that are multiplied at a time, if one kernel cannot take all
// rows: first the values of all rows of a group for these inputs, then those for the next inputs. The weights of these
// inputs, 32 KB, stay in the first-level cache of a Zen 5. With 512 inputs, decoding 16 sequences takes 8 % longer.
const pairInputs = 256

// writesResult reports whether the matrix's kernels write complete sums to the result. The sums then need not be copied
// from scratch memory.
func (m *Matrix) writesResult(rows int) bool {
	return m.pairs || m.Type.rounds() && (isa == avx512 && hasVNNI || m.usesTiles(rows))
}

type rowGroup struct {
	m             *Matrix
	x             *Input
	s             *Scratch
	p             int // panel
	index, groups int // the index of the group, and the number of groups
	start, end    int // rows
}

// sumAddresses has the addresses of rows of sums that a kernel reads and writes. All rows have 64 sums. Those that the
// kernel only reads follow each other without gaps.
type sumAddresses struct {
	dst                       *float32
	stride                    uintptr  // bytes from one row to the next
	initial, addend1, addend2 *float32 // sums of earlier inputs and of other slices, or nil
}

func (m *Matrix) compute(dst []float32, stride int, x *Input, p int, s *Scratch) {
	for i := range s.sums {
		s.sums[i] = grow(s.sums[i], maxGroupRows*Panel)
	}
	width := min(Panel, m.Out-p*Panel)
	d := m.division(x.rows)
	for i := range d.groups {
		g := rowGroup{m: m, x: x, s: s, p: p, index: i, groups: d.groups, start: d.firstRow(i), end: d.firstRow(i + 1)}
		if width == Panel {
			g.slices(&dst[g.start*stride+p*Panel], stride)
			continue
		}
		last := s.sums[3]
		g.slices(&last[0], Panel)
		for r := g.start; r < g.end; r++ {
			copy(dst[r*stride+p*Panel:][:width], last[(r-g.start)*Panel:])
		}
	}
}

// A division is how rows are divided into groups. Without tiles, size is 0, and groups are about equal. With tiles, each
// group but the last has size rows, a multiple of the rows of a tile.
type division struct{ rows, groups, size int }

func (m *Matrix) division(rows int) division {
	size := maxGroupRows
	if m.usesTiles(rows) && m.pairs {
		size = pairGroupRows
	}
	d := division{rows: rows, groups: (rows + size - 1) / size}
	if m.usesTiles(rows) {
		d.size = size
	}
	return d
}

func (d division) firstRow(group int) int {
	if d.size == 0 {
		return d.rows * group / d.groups
	}
	return min(group*d.size, d.rows)
}

// slices sets rows of dst to the sums over all slices of the inputs. It adds the slices in the same order as
// Matrix.sliced.
func (g *rowGroup) slices(dst *float32, stride int) {
	first, second, slices := &g.s.sums[0][0], &g.s.sums[1][0], max(1, g.m.slices)
	n, result := g.m.In/slices, sumAddresses{dst: dst, stride: uintptr(stride * 4)}
	inner := func(sums, addend *float32) sumAddresses {
		return sumAddresses{dst: sums, stride: Panel * 4, addend1: addend}
	}
	switch slices {
	case 2:
		g.slice(inner(first, nil), 0, n)
		result.addend1 = first
	case 4:
		g.slice(inner(first, nil), 0, n)
		g.slice(inner(first, first), n, n)
		g.slice(inner(second, nil), 2*n, n)
		result.addend1, result.addend2 = second, first
	}
	g.slice(result, (slices-1)*n, n)
}

func (g *rowGroup) slice(sums sumAddresses, k, n int) {
	multiply, limit := g.dot512, dotInputs
	switch {
	case g.m.usesTiles(g.x.rows) && g.m.pairs:
		multiply, limit = g.pairTiles, n
	case g.m.usesTiles(g.x.rows):
		multiply = g.dotTiles
	case g.m.pairs && g.x.rows <= len(pairs512):
		multiply, limit = g.pairs512, n
	case g.m.pairs:
		multiply, limit = g.pairs512, pairInputs
	case g.x.rows == 1:
		multiply, limit = g.dotRow, n
	}
	end, partial := k+n, &g.s.sums[2][0]
	for ; end-k > limit; k += limit {
		multiply(sumAddresses{dst: partial, stride: Panel * 4, initial: sums.initial}, k, limit)
		sums.initial = partial
	}
	multiply(sums, k, end-k)
}

// tiles divides the rows of the group into pieces of about equal size, each of at most limit rows, and calls kernel for
// each piece.
func (g *rowGroup) tiles(limit int, sums sumAddresses, kernel func(r, rows int, sums sumAddresses)) {
	for r, n := g.start, g.tilesOf(limit); n > 0; n-- {
		rows := (g.end - r) / n
		kernel(r, rows, sums.row(r-g.start))
		r += rows
	}
}

func (s sumAddresses) row(r int) sumAddresses {
	s.dst = add(s.dst, r*int(s.stride)/4)
	for _, other := range []**float32{&s.initial, &s.addend1, &s.addend2} {
		if *other != nil {
			*other = add(*other, r*Panel)
		}
	}
	return s
}

func (g *rowGroup) tilesOf(limit int) int { return (g.end - g.start + limit - 1) / limit }

// prefetch returns the memory that the group prefetches while it multiplies the inputs [k, k+n). The memory begins at
// address. A kernel multiplies a tile, which is some rows of the group, and prefetches about the next bytesPerTile
// bytes of this memory.
func (g *rowGroup) prefetch(k, n int) (address, bytesPerTile uintptr) {
	address, bytes := g.prefetched(k, n)
	return address, uintptr(bytes / g.tilesOf(len(dots512)))
}

// prefetched returns the address and the size of the memory that the group prefetches while it multiplies the inputs
// [k, k+n).
//
// If there is only one group of rows, the memory has the weights of the next n inputs. If there are several groups,
// they prefetch the next panel's weights for the inputs [k, k+n). These weights are divided into as many equal parts as
// there are groups, and each group prefetches a different part.
func (g *rowGroup) prefetched(k, n int) (address uintptr, bytes int) {
	m := g.m
	bytes = m.bytesOf(n)
	address = uintptr(unsafe.Pointer(&m.data[g.p*m.panelBytes+m.bytesOf(k)]))
	if g.groups == 1 {
		return address + uintptr(bytes), bytes
	}
	return address + uintptr(m.panelBytes+bytes*g.index/g.groups), bytes / g.groups
}

type pairsKernel func(dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, offset uintptr, x *float32,
	xStride uintptr, w *byte, prefetchAddr, prefetchStep, k uintptr)

var pairs512 = [...]pairsKernel{pairsAVX512x1, pairsAVX512x2, pairsAVX512x3, pairsAVX512x4, pairsAVX512x5, pairsAVX512x6}

func (g *rowGroup) pairs512(sums sumAddresses, k, n int) {
	m, x := g.m, &g.x.shorts
	w, words := &m.data[g.p*m.panelBytes+m.bytesOf(k)], uintptr(n/2)
	prefetchAddr, bytesPerTile := g.prefetch(k, n)
	if g.x.rows <= len(pairs512) {
		prefetchAddr = uintptr(unsafe.Pointer(w)) + pairsPrefetch
	}
	g.tiles(len(pairs512), sums, func(r, rows int, sums sumAddresses) {
		pairs512[rows-1](sums.dst, sums.stride, sums.initial, sums.addend1, sums.addend2, 0, &x.x[r*x.stride+k/2],
			uintptr(x.stride*4), w, prefetchAddr, bytesPerTile/words, words)
		prefetchAddr += bytesPerTile
	})
}

// pairsPrefetch is the distance in bytes from the weights that a kernel reads to the weights that it prefetches, if
// there are few rows. The weights are then read only once. See prefetch in ./asm.
const pairsPrefetch = 4096

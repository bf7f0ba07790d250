package matrix

import (
	"fmt"
	"math"
	"unsafe"

	"llmmemory/internal/serving/amx"
)

// A Scratch is memory for the products of one thread.
type Scratch struct {
	slab  []float32
	bytes []byte
	sums  [4][]float32

	tiles  []byte     // sums of blocks, from tiles
	config amx.Config // of tiles
}

// NewScratch returns a new Scratch.
func NewScratch() *Scratch {
	return &Scratch{slab: make([]float32, slab*Panel)}
}

// Product multiplies x by the panels [start, end) of the matrix. It writes output i of row r to dst[r×stride+i]. It
// panics if dst is too short for all outputs of all rows, if the rows of x do not have m.In values, or if x was not set
// for m.Form. If x has no rows or there are no panels, it does nothing.
func (m *Matrix) Product(dst []float32, stride int, x *Input, start, end int, s *Scratch) {
	if x.rows == 0 || start >= end {
		return
	}
	_ = dst[:(x.rows-1)*stride+m.Out] // the kernels do not check bounds
	if x.cols != m.In {
		panic(fmt.Sprintf("matrix: rows of %d values for a matrix of %d inputs", x.cols, m.In))
	}
	if x.forms&m.Form() == 0 {
		panic(fmt.Sprintf("matrix: an input set for the forms %b, and a matrix of form %b", x.forms, m.Form()))
	}
	direct := m.words(x).group == 0 && m.slices <= 1 && !m.Type.rounds() && !m.pairs
	for p := start; p < end; p++ {
		width := min(Panel, m.Out-p*Panel)
		switch {
		case m.writesResult(x.rows):
			m.compute(dst, stride, x, p, s)
		case direct && width == Panel:
			m.product(&dst[p*Panel], stride, m.words(x), p, 0, m.In, s)
		default:
			sums := m.sliced(x, p, s)
			for r := range x.rows {
				copy(dst[r*stride+p*Panel:][:width], sums[r*Panel:])
			}
		}
	}
}

// sliced returns the product of x with panel p, 64 values a row. It computes a sum for each slice of the inputs and
// adds these sums in pairs. The last addition adds the sums of the two halves of the slices. If a matrix was divided
// into two matrices as Slice says, each of the two computes one of the sums that this last addition adds.
func (m *Matrix) sliced(x *Input, p int, s *Scratch) []float32 {
	rows, slices, packed := x.rows, max(1, m.slices), m.words(x)
	if packed.group != 0 && !m.Type.rounds() {
		rows = (packed.groups()-1)*packed.group + packed.size(packed.groups()-1)
	}
	n := m.In / slices
	slice := func(i, buffer int) []float32 {
		s.sums[buffer] = grow(s.sums[buffer], rows*Panel)
		sums := s.sums[buffer][:rows*Panel]
		if m.Type.rounds() {
			clear(sums)
			m.dot(sums, x, p, i*n, (i+1)*n, s)
		} else if packed.group == 0 {
			m.product(&sums[0], Panel, packed, p, i*n, (i+1)*n, s)
		} else {
			clear(sums)
			m.wide(sums, packed, p, i*n, (i+1)*n, s)
		}
		return sums
	}
	sums := slice(0, 0)
	if slices > 1 {
		addTo(sums, slice(1, 1))
	}
	if slices == 4 {
		half := slice(2, 1)
		addTo(half, slice(3, 2))
		addTo(sums, half)
	}
	return sums
}

func addTo(sums, x []float32) {
	n := addPanels(sums, x)
	for i, v := range x[n:len(sums)] {
		sums[n+i] += v
	}
}

// product sets dst to the products of all rows and the inputs [start, end) of panel p. Rows of dst are stride values
// apart.
func (m *Matrix) product(dst *float32, stride int, input *words, p, start, end int, s *Scratch) {
	x, rows := &input.x[0], input.rows
	if rows <= maxDirectRows(m.kernels()) {
		m.multiply(dst, stride, add(x, start), rows, &m.data[p*m.panelBytes+m.bytesOf(start)], end-start)
		return
	}
	for r := range rows {
		clear(unsafe.Slice(add(dst, r*stride), Panel))
	}
	for k := start; k < end; k += m.slab() {
		n := min(m.slab(), end-k)
		w := (*byte)(unsafe.Pointer(&s.slab[0]))
		weights := unsafe.Pointer(&m.data[p*m.panelBytes+m.bytesOf(k)])
		if m.Type == F32 {
			w = (*byte)(weights)
		} else {
			m.decode(&s.slab[0], p, k, n)
		}
		prefetchAddr := uintptr(weights) + uintptr(m.bytesOf(n))
		for r := 0; r < rows; r += tileRows {
			tile(add(dst, r*stride), stride, add(x, r*m.In+k), m.In, w, prefetchAddr, n, min(tileRows, rows-r))
			prefetchAddr += uintptr(n * prefetchBytes)
		}
	}
}

// Exp replaces each x by exp((x − top) × scale). Every processor computes the same bits.
func Exp(x []float32, top, scale float32) {
	n := exp(x, top, scale)
	for i, v := range x[n:] {
		x[n+i] = exponential(float32((v - top) * scale))
	}
}

// argMaxPart is the number of values in a part. ArgMax finds the maximum of one part after the other. It searches for
// the index of the largest value only in the part with the largest maximum.
const argMaxPart = 1024

// ArgMax returns the index and the value of the largest number in x. Among equal numbers, it returns the first. If
// a number is NaN, the value is NaN.
func ArgMax(x []float32) (index int, value float32) {
	value = float32(math.Inf(-1))
	for start := 0; start < len(x); start += argMaxPart {
		v := largestOf(x[start:min(start+argMaxPart, len(x))])
		if v != v {
			return 0, v
		}
		if v > value {
			index, value = start, v
		}
	}
	for i := index; i < len(x); i++ {
		if x[i] == value {
			return i, value
		}
	}
	return index, value
}

// largestOf returns the largest number in x, or NaN if x has a NaN.
func largestOf(x []float32) float32 {
	n, top := largest(x)
	if top != top {
		return top
	}
	for _, v := range x[n:] {
		if !(v <= top) { // larger, or NaN
			if v != v {
				return v
			}
			top = v
		}
	}
	return top
}

// SiLUMul sets dst to gate/(1+exp(-gate)) × factor.
func SiLUMul(dst, gate, factor []float32) {
	n := siluMul(dst, gate, factor)
	for i, g := range gate[n:] {
		dst[n+i] = silu(g) * factor[n+i]
	}
}

package matrix

import (
	"math"
	"unsafe"
)

// A Scratch is memory that one thread needs for products.
type Scratch struct {
	slab   []float32
	edge   []float32
	slices [2][]float32
}

// NewScratch makes one.
func NewScratch() *Scratch { return &Scratch{slab: make([]float32, slab*Panel)} }

// Product sets the outputs of panels from up to to, for each of rows rows: row r
// of dst, which begins at dst[r×stride], to row r of x, which begins at x[r×m.In],
// times the matrix.
func (m *Matrix) Product(dst []float32, stride int, x []float32, rows, from, to int, s *Scratch) {
	if rows == 0 || from >= to {
		return
	}
	_, _ = dst[:(rows-1)*stride+m.Out], x[:rows*m.In] // the kernels check nothing
	for p := from; p < to; p++ {
		if n := m.Out - p*Panel; n < Panel {
			s.edge = grow(s.edge, rows*Panel)
			m.sliced(&s.edge[0], Panel, &x[0], rows, p, s)
			for r := range rows {
				copy(dst[r*stride+p*Panel:][:n], s.edge[r*Panel:])
			}
			continue
		}
		m.sliced(&dst[p*Panel], stride, &x[0], rows, p, s)
	}
}

// sliced computes a panel: a sum for each slice of the inputs, and the sums of these, two
// and two, so that a matrix of the first or the second half of the slices computes a
// part of the sum.
func (m *Matrix) sliced(dst *float32, stride int, x *float32, rows, p int, s *Scratch) {
	if m.slices <= 1 {
		m.product(dst, stride, x, rows, p, 0, m.In, s)
		return
	}
	n := m.In / m.slices
	for i := range s.slices {
		s.slices[i] = grow(s.slices[i], rows*Panel)
	}
	first, second := &s.slices[0][0], &s.slices[1][0]
	m.product(dst, stride, x, rows, p, 0, n, s)
	m.product(first, Panel, x, rows, p, n, 2*n, s)
	addPanel(dst, stride, first, rows)
	if m.slices == 4 {
		m.product(first, Panel, x, rows, p, 2*n, 3*n, s)
		m.product(second, Panel, x, rows, p, 3*n, 4*n, s)
		addPanel(first, Panel, second, rows)
		addPanel(dst, stride, first, rows)
	}
}

// addPanel adds rows of a panel to dst.
func addPanel(dst *float32, stride int, x *float32, rows int) {
	for r := range rows {
		to, from := unsafe.Slice(add(dst, r*stride), Panel), unsafe.Slice(add(x, r*Panel), Panel)
		for c, v := range from {
			to[c] += v
		}
	}
}

func grow(s []float32, n int) []float32 {
	if len(s) < n {
		return make([]float32, n)
	}
	return s
}

// product computes a panel over the inputs from up to to; rows of dst are stride
// values apart.
func (m *Matrix) product(dst *float32, stride int, x *float32, rows, p, from, to int, s *Scratch) {
	if rows <= direct(m.Type) {
		m.multiply(dst, stride, add(x, from), rows, &m.data[p*m.panelBytes+m.bytesOf(from)], to-from)
		return
	}
	for r := range rows {
		clear(unsafe.Slice(add(dst, r*stride), Panel))
	}
	for k := from; k < to; k += slab {
		n := min(slab, to-k)
		w := (*byte)(unsafe.Pointer(&s.slab[0]))
		at := unsafe.Pointer(&m.data[p*m.panelBytes+m.bytesOf(k)])
		if m.Type == F32 {
			w = (*byte)(at)
		} else {
			m.decode(&s.slab[0], (*byte)(at), n)
		}
		ahead := uintptr(at) + uintptr(m.bytesOf(n))
		for r := 0; r < rows; r += tileRows {
			tile(add(dst, r*stride), stride, add(x, r*m.In+k), m.In, w, ahead, n, min(tileRows, rows-r))
			ahead += uintptr(n * askedFor)
		}
	}
}

func add(p *float32, n int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), n*4))
}

// Exp replaces each x by exp((x − top) × scale).
func Exp(x []float32, top, scale float32) {
	n := exp(x, top, scale)
	for i, v := range x[n:] {
		x[n+i] = float32(math.Exp(float64((v - top) * scale)))
	}
}

// SiLUMul sets dst to gate/(1+exp(-gate)) × up.
func SiLUMul(dst, gate, up []float32) {
	n := siluMul(dst, gate, up)
	for i, g := range gate[n:] {
		dst[n+i] = silu(g) * up[n+i]
	}
}

package matrix

import (
	"math"
	"unsafe"
)

// A Scratch is memory that one thread needs for products.
type Scratch struct {
	slab []float32
	edge []float32
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
			m.edge(dst, stride, x, rows, p, n, s)
			continue
		}
		m.product(&dst[p*Panel], stride, &x[0], rows, p, s)
	}
}

// edge computes a panel that is not full in memory of its own.
func (m *Matrix) edge(dst []float32, stride int, x []float32, rows, p, n int, s *Scratch) {
	if len(s.edge) < rows*Panel {
		s.edge = make([]float32, rows*Panel)
	}
	m.product(&s.edge[0], Panel, &x[0], rows, p, s)
	for r := range rows {
		copy(dst[r*stride+p*Panel:][:n], s.edge[r*Panel:])
	}
}

// product computes a panel; rows of dst are stride values apart.
func (m *Matrix) product(dst *float32, stride int, x *float32, rows, p int, s *Scratch) {
	if rows <= direct(m.Type) {
		m.multiply(dst, stride, x, rows, m.panel(p))
		return
	}
	for r := range rows {
		clear(unsafe.Slice(add(dst, r*stride), Panel))
	}
	for k := 0; k < m.In; k += slab {
		n := min(slab, m.In-k)
		w := (*byte)(unsafe.Pointer(&s.slab[0]))
		if at := unsafe.Pointer(&m.data[p*m.panelBytes+m.bytesOf(k)]); m.Type == F32 {
			w = (*byte)(at)
		} else {
			m.decode(&s.slab[0], (*byte)(at), n)
		}
		for r := 0; r < rows; r += tileRows {
			tile(add(dst, r*stride), stride, add(x, r*m.In+k), m.In, w, n, min(tileRows, rows-r))
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

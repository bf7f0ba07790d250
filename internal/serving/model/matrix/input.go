package matrix

import "unsafe"

// An Input is rows of activations in the representations that products read. Several threads may read it at the same
// time. The zero Input is ready for Set, which reuses the Input's memory.
type Input struct {
	x          []float32
	rows, cols int
	forms      Form

	floats  words   // Floats
	shorts  words   // Shorts or Pairs
	rounded rounded // Rounded
}

// A Form is a set of representations of activations. It cannot have both Shorts and Pairs.
type Form uint8

const (
	Floats  Form = 1 << iota
	Rounded      // rounded to 8 bits
	Shorts       // rounded to BF16, as f32
	Pairs        // rounded to BF16, two in 32 bits
)

// Form returns the form that a product with the matrix reads.
func (m *Matrix) Form() Form {
	switch {
	case m.Type.rounds():
		return Rounded
	case m.pairs:
		return Pairs
	case m.Type == W16A16:
		return Shorts
	}
	return Floats
}

// rowsPerCall is the number of rows that a call of Pack rounds if rows are not packed in groups.
const rowsPerCall = 8

// Set sets the rows of the input to values, which has the given number of rows with cols values each. The input uses
// the memory of values. forms are the representations that the following products need. Pack makes these
// representations. Before the first product, Pack must be called with each number from 0 to calls-1. Different threads
// may make these calls at the same time.
func (x *Input) Set(values []float32, rows, cols int, forms Form) (calls int) {
	x.x, x.rows, x.cols, x.forms = values[:rows*cols], rows, cols, forms
	x.floats.rows, x.shorts.rows = 0, 0
	if forms&Floats != 0 {
		x.floats.set(x.x, rows, cols)
		calls = x.floats.groups()
	}
	if forms&(Shorts|Pairs) != 0 {
		if forms&Pairs != 0 {
			x.shorts.setPairs(rows, cols)
		} else {
			x.shorts.set(grow(x.shorts.x, rows*cols), rows, cols)
		}
		calls += x.shortCalls()
	}
	if forms&Rounded != 0 {
		x.rounded.resize(rows, cols)
		calls += (rows + rowsPerCall - 1) / rowsPerCall
	}
	return calls
}

func (x *Input) shortCalls() int {
	if x.shorts.group != 0 {
		return x.shorts.groups()
	}
	return (x.shorts.rows + rowsPerCall - 1) / rowsPerCall
}

// Pack does a part of the packing; see Set.
func (x *Input) Pack(call int) {
	if call < x.floats.groups() {
		x.floats.pack(call)
		return
	}
	call -= x.floats.groups()
	if call < x.shortCalls() {
		x.shorten(call)
		return
	}
	call -= x.shortCalls()
	for r := call * rowsPerCall; r < min((call+1)*rowsPerCall, x.rows); r++ {
		x.rounded.row(r, x.x[r*x.cols:][:x.cols])
	}
}

// shorten does the work of one call of Pack for Shorts or Pairs. It rounds the call's share of the rows to BF16. If
// rows are packed in groups, this share is a group, and shorten also packs it.
func (x *Input) shorten(call int) {
	s, n := &x.shorts, rowsPerCall
	if s.group != 0 {
		n = s.group
	}
	for r := call * n; r < min((call+1)*n, s.rows); r++ {
		dst, src := s.x[r*s.stride:][:s.cols], x.x[r*x.cols:][:x.cols]
		if x.forms&Pairs != 0 {
			roundPairs(dst, src)
		} else {
			roundShorts(dst, src)
		}
	}
	if s.group != 0 {
		s.pack(call)
	}
}

// words returns the rows that a product with the matrix reads. The matrix must not need 8-bit activations.
func (m *Matrix) words(x *Input) *words {
	if m.Type == W16A16 {
		return &x.shorts
	}
	return &x.floats
}

// words has rows of 32-bit values, which are f32 or pairs of BF16.
type words struct {
	x                  []float32
	rows, cols, stride int // stride: values from one row of x to the next

	// Kernels for many rows read the field packed instead of the field x. The field packed has the rows in groups. In a
	// group, the values of all rows for one input are adjacent. The last group may have fewer rows than the others. If no
	// kernel has exactly this number of rows, rows of zeros follow (see size).
	group  int // rows of a group, a multiple of 4; 0 if kernels read x
	packed []float32
	zeros  []float32
}

func (w *words) set(x []float32, rows, cols int) {
	w.x, w.rows, w.cols, w.stride, w.group = x, rows, cols, cols, groupOf(rows)
	if w.group != 0 {
		last := w.groups() - 1
		w.zeros = grow(w.zeros, cols)
		w.packed = grow(w.packed, last*w.group*cols+w.size(last)*cols)
	}
}

// setPairs allocates memory for the given number of rows, each with cols values in BF16. It leaves a cache line between
// rows. Without this space, rows could be a multiple of 4 KB apart, and reading several of them would take a quarter
// longer.
func (w *words) setPairs(rows, cols int) {
	w.rows, w.cols, w.stride, w.group = rows, cols/2, cols/2+line/4, 0
	w.x = grow(w.x, rows*w.stride)
}

// groups returns the number of groups of rows in w.packed, or 0 if kernels read w.x.
func (w *words) groups() int {
	if w.group == 0 {
		return 0
	}
	return (w.rows + w.group - 1) / w.group
}

// size returns the number of rows of a group, including padding.
func (w *words) size(group int) int { return kernelRows(min(w.group, w.rows-group*w.group)) }

func (w *words) address(group, k int) *float32 {
	return &w.packed[group*w.group*w.cols+k*w.size(group)]
}

func (w *words) pack(group int) {
	size, dst := w.size(group), w.packed[group*w.group*w.cols:]
	for r := 0; r < size; r += 4 {
		var four [4][]float32
		for i := range four {
			four[i] = w.zeros[:w.cols]
			if row := group*w.group + r + i; row < w.rows {
				four[i] = w.x[row*w.cols:][:w.cols]
			}
		}
		for k := gather(dst[r:], size, &four); k < w.cols; k++ {
			for i, row := range four {
				dst[k*size+r+i] = row[k]
			}
		}
	}
}

func add(p *float32, n int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), n*4))
}

// grow returns s if it has at least n values. Otherwise it returns a copy of s, extended to n values with zeros.
func grow[T any](s []T, n int) []T {
	if len(s) < n {
		return append(s, make([]T, n-len(s))...)
	}
	return s
}

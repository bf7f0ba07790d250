package matrix

import "unsafe"

// An Input is rows of activations in the representations that products read. Several threads may read it at the same
// time. The zero Input is ready for Set, which reuses the Input's memory.
type Input struct {
	x        []float32
	rows, in int
	forms    Form

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

// Set sets the input to values, which it does not copy. They are the given number of rows with in values each. forms
// are the representations that the following products need. Pack makes them: before the first product, it must be
// called with each number from 0 to calls-1, by any threads.
func (x *Input) Set(values []float32, rows, in int, forms Form) (calls int) {
	x.x, x.rows, x.in, x.forms = values[:rows*in], rows, in, forms
	x.floats.rows, x.shorts.rows = 0, 0
	if forms&Floats != 0 {
		x.floats.set(x.x, rows, in)
		calls = x.floats.groups()
	}
	if forms&(Shorts|Pairs) != 0 {
		if forms&Pairs != 0 {
			x.shorts.setPairs(rows, in)
		} else {
			x.shorts.set(grow(x.shorts.x, rows*in), rows, in)
		}
		calls += x.shortCalls()
	}
	if forms&Rounded != 0 {
		x.rounded.resize(rows * x.in)
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
		x.rounded.row(r, x.x[r*x.in:][:x.in])
	}
}

// shorten does the work of one call of Pack for Shorts or Pairs. It rounds some rows to BF16 and, if rows are packed in
// groups, packs them.
func (x *Input) shorten(call int) {
	s, n := &x.shorts, rowsPerCall
	if s.group != 0 {
		n = s.group
	}
	for r := call * n; r < min((call+1)*n, s.rows); r++ {
		to, from := s.x[r*s.stride:][:s.in], x.x[r*x.in:][:x.in]
		if x.forms&Pairs != 0 {
			roundPairs(to, from)
		} else {
			roundShorts(to, from)
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
	x                []float32
	rows, in, stride int // stride: values from one row of x to the next

	// Kernels for many rows do not read x, but packed. It has the rows in groups; group is the number of rows of a group,
	// a multiple of 4. In a group, the values of all rows for one input are adjacent. The last group may be smaller, and
	// is padded with rows of zeros.
	group  int // 0 if kernels read x itself
	packed []float32
	zeros  []float32
}

func (w *words) set(x []float32, rows, in int) {
	w.x, w.rows, w.in, w.stride, w.group = x, rows, in, in, groupOf(rows)
	if w.group != 0 {
		last := w.groups() - 1
		w.zeros = grow(w.zeros, in)
		w.packed = grow(w.packed, last*w.group*in+w.size(last)*in)
	}
}

// setPairs allocates memory for the given number of rows, each of in BF16. It leaves a cache line between rows. Reading
// several rows at a distance of a multiple of 4 KB would take a quarter longer.
func (w *words) setPairs(rows, in int) {
	w.rows, w.in, w.stride, w.group = rows, in/2, in/2+line/4, 0
	w.x = grow(w.x, rows*w.stride)
}

// groups returns the number of groups of rows, or 0 if kernels read x and not packed.
func (w *words) groups() int {
	if w.group == 0 {
		return 0
	}
	return (w.rows + w.group - 1) / w.group
}

// size returns the number of rows of a group, including padding.
func (w *words) size(group int) int { return kernelRows(min(w.group, w.rows-group*w.group)) }

func (w *words) at(group, k int) *float32 {
	return &w.packed[group*w.group*w.in+k*w.size(group)]
}

func (w *words) pack(group int) {
	size, dst := w.size(group), w.packed[group*w.group*w.in:]
	for r := 0; r < size; r += 4 {
		var four [4][]float32
		for i := range four {
			four[i] = w.zeros[:w.in]
			if row := group*w.group + r + i; row < w.rows {
				four[i] = w.x[row*w.in:][:w.in]
			}
		}
		for k := gather(dst[r:], size, &four); k < w.in; k++ {
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

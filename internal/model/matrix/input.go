package matrix

import "unsafe"

// An Input is rows of activations that products read, by many threads if need be. The zero Input is
// ready for Set. It keeps memory for the largest rows that it has had.
type Input struct {
	x        []float32
	rows, in int

	// Kernels for many rows take them in groups of group, a multiple of 4, in which the values of
	// each k lie side by side. The last group is filled up with zeros.
	group  int // 0: kernels read x itself
	packed []float32
	zeros  []float32

	rounded rounded // if forms say so
	forms   Form
}

// A Form is how a product reads activations. Forms can be combined.
type Form uint8

const (
	Floats  Form = 1 << iota
	Rounded      // to 8 bits
)

// Form is what a product with the matrix reads.
func (m *Matrix) Form() Form {
	if m.Type.rounds() {
		return Rounded
	}
	return Floats
}

// roundedTogether is the number of rows that one call of Pack rounds.
const roundedTogether = 8

// Set makes the input rows of in values each, which stay where they are, and returns the number of
// calls of Pack, from 0 on and by any thread, that it takes before a product. forms are those that the
// matrices to come read.
func (x *Input) Set(values []float32, rows, in int, forms Form) (calls int) {
	x.x, x.rows, x.in, x.group, x.forms = values[:rows*in], rows, in, 0, forms
	if forms&Floats != 0 {
		x.group = groupOf(rows)
	}
	if x.group != 0 {
		calls = x.groups()
		x.zeros = grow(x.zeros, in)
		x.packed = grow(x.packed, (calls-1)*x.group*in+x.size(calls-1)*in)
	}
	if forms&Rounded != 0 {
		x.rounded.reach(rows * in)
		calls += (rows + roundedTogether - 1) / roundedTogether
	}
	return calls
}

func (x *Input) groups() int { return (x.rows + x.group - 1) / x.group }

// size is the number of rows of a group with those that fill it up.
func (x *Input) size(group int) int { return fillUp(min(x.group, x.rows-group*x.group)) }

// at is the values of a group from k on.
func (x *Input) at(group, k int) *float32 {
	return &x.packed[group*x.group*x.in+k*x.size(group)]
}

// Pack does one of the calls that Set asked for.
func (x *Input) Pack(call int) {
	if x.group != 0 {
		if call < x.groups() {
			x.pack(call)
			return
		}
		call -= x.groups()
	}
	for r := call * roundedTogether; r < min((call+1)*roundedTogether, x.rows); r++ {
		x.rounded.row(r, x.x[r*x.in:][:x.in])
	}
}

// pack packs a group.
func (x *Input) pack(group int) {
	size, dst := x.size(group), x.packed[group*x.group*x.in:]
	for r := 0; r < size; r += 4 {
		var four [4][]float32
		for i := range four {
			four[i] = x.zeros[:x.in]
			if row := group*x.group + r + i; row < x.rows {
				four[i] = x.x[row*x.in:][:x.in]
			}
		}
		for k := gather(dst[r:], size, &four); k < x.in; k++ {
			for i, row := range four {
				dst[k*size+r+i] = row[k]
			}
		}
	}
}

func add(p *float32, n int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), n*4))
}

func grow(s []float32, n int) []float32 {
	if len(s) < n {
		return make([]float32, n)
	}
	return s
}

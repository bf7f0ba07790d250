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
}

// Set makes the input rows of in values each, which stay where they are, and returns the number of
// groups, which Pack must be called for before a product, by any thread.
func (x *Input) Set(values []float32, rows, in int) (groups int) {
	x.x, x.rows, x.in, x.group = values[:rows*in], rows, in, groupOf(rows)
	if x.group == 0 {
		return 0
	}
	groups = x.groups()
	x.zeros = grow(x.zeros, in)
	x.packed = grow(x.packed, (groups-1)*x.group*in+x.size(groups-1)*in)
	return groups
}

func (x *Input) groups() int { return (x.rows + x.group - 1) / x.group }

// size is the number of rows of a group with those that fill it up.
func (x *Input) size(group int) int { return fillUp(min(x.group, x.rows-group*x.group)) }

// at is the values of a group from k on.
func (x *Input) at(group, k int) *float32 {
	return &x.packed[group*x.group*x.in+k*x.size(group)]
}

// Pack packs a group.
func (x *Input) Pack(group int) {
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

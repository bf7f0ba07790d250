//go:build amd64 && !purego

package matrix

// updateState computes the first columns of UpdateState and returns their number.
func updateState(out, state, value, key, query []float32, decay float32) int {
	columns, rows, stride := len(value), uintptr(len(key)), uintptr(4*len(value))
	if rows == 0 {
		return 0
	}
	kernels := [...]func(out, state, value, key, query *float32, rows, stride uintptr, decay float32){
		updateStateAVX512x4, updateStateAVX512x1, updateStateAVX2x4, updateStateAVX2x1}
	return strips(columns, func(kernel, c int) {
		kernels[kernel](&out[c], &state[c], &value[c], &key[0], &query[0], rows, stride, decay)
	})
}

// readState computes the first columns of ReadState and returns their number.
func readState(out, state, key []float32) int {
	columns, rows, stride := len(out), uintptr(len(key)), uintptr(4*len(out))
	if rows == 0 {
		return 0
	}
	kernels := [...]func(out, state, key *float32, rows, stride uintptr){
		readStateAVX512x4, readStateAVX512x1, readStateAVX2x4, readStateAVX2x1}
	return strips(columns, func(kernel, c int) { kernels[kernel](&out[c], &state[c], &key[0], rows, stride) })
}

// strips divides columns into strips, each for a kernel that this processor has. It calls run with the number of the
// kernel and the first column of a strip, and returns the number of columns in strips.
func strips(columns int, run func(kernel, c int)) (c int) {
	for kernel, width := range [...]int{4 * 16, 16, 4 * 8, 8} { // AVX-512, then AVX2
		if isa == portable || kernel < 2 && isa != avx512 {
			continue
		}
		for ; c+width <= columns; c += width {
			run(kernel, c)
		}
	}
	return c
}

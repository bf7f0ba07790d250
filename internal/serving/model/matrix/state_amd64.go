//go:build amd64 && !purego

package matrix

// updateState computes the first columns of UpdateState and returns their number.
func updateState(out, state, value, key, query []float32, decay float32) int {
	c, columns, rows, stride := 0, len(value), uintptr(len(key)), uintptr(4*len(value))
	if rows == 0 {
		return 0
	}
	kernels := [...]struct {
		columns int
		run     func(out, state, value, key, query *float32, rows, stride uintptr, decay float32)
	}{{64, updateStateAVX512x4}, {16, updateStateAVX512x1}, {32, updateStateAVX2x4}, {8, updateStateAVX2x1}}
	for i, kernel := range kernels {
		if isa == portable || i < 2 && isa != avx512 {
			continue
		}
		for ; c+kernel.columns <= columns; c += kernel.columns {
			kernel.run(&out[c], &state[c], &value[c], &key[0], &query[0], rows, stride, decay)
		}
	}
	return c
}

// readState computes the first columns of ReadState and returns their number.
func readState(out, state, key []float32) int {
	c, columns, rows, stride := 0, len(out), uintptr(len(key)), uintptr(4*len(out))
	if rows == 0 {
		return 0
	}
	kernels := [...]struct {
		columns int
		run     func(out, state, key *float32, rows, stride uintptr)
	}{{64, readStateAVX512x4}, {16, readStateAVX512x1}, {32, readStateAVX2x4}, {8, readStateAVX2x1}}
	for i, kernel := range kernels {
		if isa == portable || i < 2 && isa != avx512 {
			continue
		}
		for ; c+kernel.columns <= columns; c += kernel.columns {
			kernel.run(&out[c], &state[c], &key[0], rows, stride)
		}
	}
	return c
}

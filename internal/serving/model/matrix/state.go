package matrix

// UpdateState computes one token of one head of a linear recurrence. It replaces state, a matrix of len(key) rows and
// len(value) columns, by
//
//	decay × state + key ⊗ value
//
// and sets out to the product of query and the new state. Its sums are in the order of the rows.
func UpdateState(out, state, value, key, query []float32, decay float32) {
	columns := len(value)
	n := updateState(out, state, value, key, query, decay)
	if n == columns {
		return
	}
	value, out = value[n:], out[n:columns]
	clear(out)
	for i, k := range key {
		row, q := state[i*columns+n:(i+1)*columns], query[i]
		for c, v := range value {
			row[c] = decay*row[c] + k*v
			out[c] += q * row[c]
		}
	}
}

// ReadState sets out to the product of key and state, a matrix of len(key) rows and len(out) columns. Its sums are in
// the order of the rows.
func ReadState(out, state, key []float32) {
	columns := len(out)
	n := readState(out, state, key)
	if n == columns {
		return
	}
	rest := out[n:]
	clear(rest)
	for i, k := range key {
		for c, v := range state[i*columns+n : (i+1)*columns] {
			rest[c] += k * v
		}
	}
}

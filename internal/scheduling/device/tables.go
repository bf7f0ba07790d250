package device

// Tables recycles the arrays of block tables, so that there are never more arrays than sequences
// that had blocks at the same time.
type Tables struct{ spare [][]int32 }

// Take returns an empty table.
func (t *Tables) Take() []int32 {
	n := len(t.spare)
	if n == 0 {
		return nil
	}
	table := t.spare[n-1]
	t.spare = t.spare[:n-1]
	return table
}

// Give returns the array of a table for reuse. The caller must not use it afterwards.
func (t *Tables) Give(table []int32) {
	if cap(table) > 0 {
		t.spare = append(t.spare, table[:0])
	}
}

package device

// Tables keeps the arrays of block tables that were given up, for new ones. So
// there are as many as sequences had blocks at once, and they stop growing.
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

// Give takes the array of a table that its owner must not use any more.
func (t *Tables) Give(table []int32) {
	if cap(table) > 0 {
		t.spare = append(t.spare, table[:0])
	}
}

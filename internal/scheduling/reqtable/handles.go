package reqtable

// Handles assigns a number, called a handle, to each value. It assigns each handle once, so Get returns nil for the
// handle of a removed value. The zero Handles is empty. It is not safe for concurrent use.
type Handles[T any] struct {
	entries []entry[T]
	free    []uint32
	n       int
}

type entry[T any] struct {
	value      *T     // nil if the entry is free
	generation uint32 // high half of the value's handle; incremented by Remove
}

// Add returns a handle for value. No handle is 0.
func (t *Handles[T]) Add(value *T) uint64 {
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = uint32(len(t.entries))
		t.entries = append(t.entries, entry[T]{generation: 1})
	}
	e := &t.entries[index]
	e.value = value
	t.n++
	return uint64(e.generation)<<32 | uint64(index)
}

// Get returns the value with the handle h, or nil if there is no such value.
func (t *Handles[T]) Get(h uint64) *T {
	index := uint32(h)
	if uint64(index) >= uint64(len(t.entries)) || t.entries[index].generation != uint32(h>>32) {
		return nil
	}
	return t.entries[index].value
}

// Remove removes the value with the handle h. Its entry is reused for other values, and each reuse increases the
// generation in the handle. An entry whose generation would reach 2^32 is not used again.
func (t *Handles[T]) Remove(h uint64) {
	if t.Get(h) == nil {
		return
	}
	index := uint32(h)
	t.entries[index].value = nil
	t.n--
	t.entries[index].generation++
	if t.entries[index].generation != 0 {
		t.free = append(t.free, index)
	}
}

// Len returns the number of values.
func (t *Handles[T]) Len() int { return t.n }

package reqtable

// Handles assigns a number, called a handle, to each value. It never uses a handle twice, so after a value is
// removed, its handle finds nothing. The zero Handles is empty. It is not safe for concurrent use.
type Handles[T any] struct {
	places []place[T]
	free   []uint32
	n      int
}

type place[T any] struct {
	value      *T     // nil if the place is free
	generation uint32 // high half of the value's handle; incremented by Remove
}

// Add returns a handle for value. No handle is 0.
func (t *Handles[T]) Add(value *T) uint64 {
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = uint32(len(t.places))
		t.places = append(t.places, place[T]{generation: 1})
	}
	p := &t.places[index]
	p.value = value
	t.n++
	return uint64(p.generation)<<32 | uint64(index)
}

// Get returns the value with the handle h, or nil if there is no such value.
func (t *Handles[T]) Get(h uint64) *T {
	index := uint32(h)
	if uint64(index) >= uint64(len(t.places)) || t.places[index].generation != uint32(h>>32) {
		return nil
	}
	return t.places[index].value
}

// Remove removes the value with the handle h. A place whose generations are used up is not reused.
func (t *Handles[T]) Remove(h uint64) {
	if t.Get(h) == nil {
		return
	}
	index := uint32(h)
	t.places[index].value = nil
	t.n--
	t.places[index].generation++
	if t.places[index].generation != 0 {
		t.free = append(t.free, index)
	}
}

// Len returns the number of values.
func (t *Handles[T]) Len() int { return t.n }

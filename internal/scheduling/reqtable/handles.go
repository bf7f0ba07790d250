package reqtable

// Handles gives values numbers that are never used twice, so that the handle of a removed value finds nothing,
// even if its place holds another one. The zero Handles is empty. It is not safe for concurrent use.
type Handles[T any] struct {
	places []place[T]
	free   []uint32
	n      int
}

type place[T any] struct {
	value      *T // nil: free
	generation uint32
}

// Add returns a handle for value. No handle is 0.
func (t *Handles[T]) Add(value *T) uint64 {
	var at uint32
	if n := len(t.free); n > 0 {
		at, t.free = t.free[n-1], t.free[:n-1]
	} else {
		at = uint32(len(t.places))
		t.places = append(t.places, place[T]{generation: 1})
	}
	p := &t.places[at]
	p.value = value
	t.n++
	return uint64(p.generation)<<32 | uint64(at)
}

// Get returns the value of h, or nil if there is none or none any more.
func (t *Handles[T]) Get(h uint64) *T {
	at := uint32(h)
	if uint64(at) >= uint64(len(t.places)) || t.places[at].generation != uint32(h>>32) {
		return nil
	}
	return t.places[at].value
}

// Remove forgets h. Its generation is over; a place whose generations are used
// up is left alone for good.
func (t *Handles[T]) Remove(h uint64) {
	if t.Get(h) == nil {
		return
	}
	at := uint32(h)
	t.places[at].value = nil
	t.n--
	t.places[at].generation++
	if t.places[at].generation != 0 {
		t.free = append(t.free, at)
	}
}

// Len is the number of values.
func (t *Handles[T]) Len() int { return t.n }

package course

import (
	"math/bits"
	"unsafe"
)

// A table is a hash table with open addressing and linear probing, at most half
// full, in pages that it takes from and gives back to the kernel. It is not on
// the Go heap, which has no collector here, nor on C's, where a tester counts.
type table[R record[R]] struct {
	slots []R // a power of two of them, or none
	used  int
	shift uint8 // 64 - log2(len(slots)): a hash's high bits are the home slot
}

type record[R any] interface {
	empty() bool
	same(R) bool
	hash() uint64
}

const (
	firstSlots = 64
	keptSlots  = 1024 // an empty table of this size keeps its pages: it will be used again
)

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// find returns the index of key, or of the empty slot where it would go.
func (t *table[R]) find(key R) int {
	mask := len(t.slots) - 1
	i := int(key.hash() >> t.shift)
	for !t.slots[i].empty() && !t.slots[i].same(key) {
		i = (i + 1) & mask
	}
	return i
}

func (t *table[R]) get(key R) *R {
	if t.used == 0 {
		return nil
	}
	if i := t.find(key); !t.slots[i].empty() {
		return &t.slots[i]
	}
	return nil
}

// add returns the like of r, which is r itself if there was none; nil when the
// table would have to grow and the kernel gives no memory.
func (t *table[R]) add(r R) *R {
	if 2*(t.used+1) > len(t.slots) && !t.grow() {
		return nil
	}
	slot := &t.slots[t.find(r)]
	if (*slot).empty() {
		t.used++
		*slot = r
	}
	return slot
}

// remove takes the like of key out and closes the gap: every record after it
// moves up unless that would put it before its home.
func (t *table[R]) remove(key R) {
	if t.used == 0 {
		return
	}
	mask := len(t.slots) - 1
	gap := t.find(key)
	if t.slots[gap].empty() {
		return
	}
	for i := (gap + 1) & mask; !t.slots[i].empty(); i = (i + 1) & mask {
		home := int(t.slots[i].hash() >> t.shift)
		if (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	var none R
	t.slots[gap] = none
	if t.used--; t.used == 0 && len(t.slots) > keptSlots {
		t.clear()
	}
}

// clear gives all memory back.
func (t *table[R]) clear() {
	if t.slots != nil {
		unmap(unsafe.Pointer(&t.slots[0]), t.bytes(len(t.slots)))
	}
	*t = table[R]{}
}

func (t *table[R]) grow() bool {
	old := *t
	n := max(firstSlots, 2*len(old.slots))
	p := mapPages(t.bytes(n))
	if p == nil {
		return false
	}
	t.slots = unsafe.Slice((*R)(p), n)
	t.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	t.used = 0
	for _, r := range old.slots {
		if !r.empty() {
			t.slots[t.find(r)] = r
			t.used++
		}
	}
	if old.slots != nil {
		old.clear()
	}
	return true
}

func (t *table[R]) bytes(n int) uintptr {
	var r R
	return uintptr(n) * unsafe.Sizeof(r)
}

package course

import (
	"math/bits"
	"unsafe"
)

// A table is a hash table with open addressing and linear probing. It is at most half full. Its memory is pages from
// the kernel. It is not on the Go heap, because the library collects no garbage there, and not on C's heap, because a
// tester counts the allocations there.
type table[R record[R]] struct {
	slots []R // a power of two, or none
	used  int
	shift uint8 // 64 - log2(len(slots)): the high bits of a hash are the index of its home slot
}

type record[R any] interface {
	empty() bool
	sameKey(R) bool
	hash() uint64
}

const (
	firstSlots = 64
	keptSlots  = 1024 // an empty table of at most this size keeps its pages
)

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// find returns the index of the slot that has the key. If no slot has it, find returns the index of the empty slot
// into which a record with this key would be put.
func (t *table[R]) find(key R) int {
	mask := len(t.slots) - 1
	i := int(key.hash() >> t.shift)
	for !t.slots[i].empty() && !t.slots[i].sameKey(key) {
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

// add returns the record with the same key as r. If there is none, it adds r. It returns nil if there is no memory for
// a larger table.
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

// remove removes the record with this key and closes the gap. A search for a record begins at its home slot, which its
// hash selects, and ends at the first empty slot. So the gap would hide each following record whose home slot is not
// after the gap. remove moves such a record into the gap, and continues with the gap that this record has left.
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

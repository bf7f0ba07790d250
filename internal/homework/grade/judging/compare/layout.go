package compare

import (
	"iter"
	"unsafe"

	"llmmemory/internal/homework/course"
)

type (
	engineStruct struct {
		pool        uint64
		total, free int32
		refCount    uint64
		active      listNode
	}
	sequenceStruct struct {
		id         int32
		_          int32
		blockTable uint64
		kvCount    int32
		_          int32
		node       listNode
	}
	listNode struct{ prev, next uint64 }
	l1Table  [course.L1Size]uint64
)

const (
	engineSize   = uint64(unsafe.Sizeof(engineStruct{}))
	sequenceSize = uint64(unsafe.Sizeof(sequenceStruct{}))
	l1Size       = uint64(unsafe.Sizeof(l1Table{}))
	l2Size       = uint64(unsafe.Sizeof(course.L2Table{}))
	activeOffset = uint64(unsafe.Offsetof(engineStruct{}.active))
	nodeOffset   = uint64(unsafe.Offsetof(sequenceStruct{}.node))
)

// checked returns the T at an address of the submission's memory, or nil if the T is not inside one live allocation.
func checked[T any](p *player, address uint64) *T {
	bytes := p.chunk(address, uint64(unsafe.Sizeof(*new(T))))
	return (*T)(unsafe.Pointer(unsafe.SliceData(bytes)))
}

// view returns the T at an address of the submission's memory. If the address is not valid, view returns a zero T. A
// check of the address before does not suffice: the caller may read it from the submission's memory again, and the
// process may have changed it there since the check.
func view[T any](p *player, address uint64) *T {
	if bytes := p.subject.At(address, uint64(unsafe.Sizeof(*new(T)))); bytes != nil {
		return (*T)(unsafe.Pointer(&bytes[0]))
	}
	return new(T)
}

// refCounts returns n reference counts at an address of the submission's memory, or nil if they are not inside one
// live allocation.
func (p *player) refCounts(address uint64, n int32) []int32 {
	return ints(p.chunk(address, 4*uint64(uint32(n))))
}

func ints(bytes []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/4)
}

func (p *player) head(engine int) uint64 { return p.engines[engine] + activeOffset }

func (p *player) last(engine int) uint64 { return view[listNode](p, p.head(engine)).prev - nodeOffset }

// sequences iterates over the submission's list: the address and the struct of each sequence. It stops at an invalid
// pointer and, because a list may have no end, after one more sequence than there are live allocations. The body of the
// loop may free the sequence.
func (p *player) sequences(engine int) iter.Seq2[uint64, *sequenceStruct] {
	return func(yield func(uint64, *sequenceStruct) bool) {
		head := p.head(engine)
		node := view[listNode](p, head).next
		for steps := len(p.live); node != head && steps >= 0; steps-- {
			s := checked[sequenceStruct](p, node-nodeOffset)
			if s == nil {
				return
			}
			next := s.node.next
			if !yield(node-nodeOffset, s) {
				return
			}
			node = next
		}
	}
}

package compare

import (
	"encoding/binary"
	"unsafe"

	"llmmemory/internal/course"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/subject"
)

// outside makes a write from outside on both sides, which were equal before it.
// The counts stay consistent: what a submission is graded on makes sense. What
// there is nothing to write to is left alone.
func (p *player) outside(op trace.Op) *Difference {
	want := p.expected.Engines[op.Engine]
	if want == nil {
		return nil
	}
	s, address := p.find(op.Engine, op.A)
	if s == nil {
		return nil
	}
	bytes := p.view(address, sequenceSize)
	l1 := p.view(u64(bytes, unsafe.Offsetof(s.BlockTable)), l1Size)
	switch op.Kind {
	case trace.Hole:
		p.hole(op.Engine, s, l1, uint32(op.B)%course.MaxLogicalBlocks)
	case trace.Move:
		to, from := uint32(op.B)%course.L1Size, uint32(op.C)%course.L1Size
		s.BlockTable[to], s.BlockTable[from] = s.BlockTable[from], s.BlockTable[to]
		a, b := u64(l1, uintptr(8*to)), u64(l1, uintptr(8*from))
		put64(l1, uintptr(8*to), b)
		put64(l1, uintptr(8*from), a)
	case trace.Relocate:
		switch slot := uint32(op.B) % 18; {
		case slot < course.L1Size:
			return p.relocate(l1, uintptr(8*slot), l2Size)
		case slot == course.L1Size:
			return p.relocate(bytes, unsafe.Offsetof(s.BlockTable), l1Size)
		default:
			return p.relocate(p.view(p.engines[op.Engine], engineSize), unsafe.Offsetof(want.RefCount), 4*uint64(want.Total))
		}
	case trace.Rename:
		if other, _ := p.find(op.Engine, op.B); other == nil {
			s.ID = op.B
			put32(bytes, unsafe.Offsetof(s.ID), op.B)
		}
	case trace.Unlink:
		s.Node.Prev.Next, s.Node.Next.Prev = s.Node.Next, s.Node.Prev
		before, after := u64(bytes, uintptr(nodeOffset)), u64(bytes, uintptr(nodeOffset)+8)
		put64(p.view(before, 16), 8, after)
		put64(p.view(after, 16), 0, before)
	}
	return nil
}

// view is what lies at an address that was looked at before. The process can
// have changed the pointer to it since; then it is nothing, and what is compared
// next shows that.
func (p *player) view(address, size uint64) []byte {
	if bytes := p.subject.At(address, size); bytes != nil {
		return bytes
	}
	return make([]byte, size)
}

// hole unmaps a logical block.
func (p *player) hole(engine int, s *course.Sequence, l1 []byte, logical uint32) {
	i, j := logical/course.L2Size, logical%course.L2Size
	if l2 := s.BlockTable[i]; l2 != nil && l2[j] >= 0 {
		p.drop(engine, l2[j])
		l2[j] = -1
		put32(p.view(u64(l1, uintptr(8*i)), l2Size), uintptr(4*j), -1)
	}
}

// relocate moves what the pointer at that place leads to. The oracle, which
// keeps no address, needs nothing of the kind.
func (p *player) relocate(holder []byte, place uintptr, size uint64) *Difference {
	old := u64(holder, place)
	if old == 0 {
		return nil
	}
	got, err := p.subject.Do(subject.Request{Call: subject.Allocate, Size: size})
	if err == nil {
		copy(p.view(uint64(got.Returned), size), p.view(old, size))
		put64(holder, place, uint64(got.Returned))
		_, err = p.subject.Do(subject.Request{Call: subject.GiveBack, Engine: old})
	}
	if err != nil {
		return p.death(err)
	}
	delete(p.chunks, old)
	p.chunks[uint64(got.Returned)] = size
	return nil
}

// drop takes one reference of a block away.
func (p *player) drop(engine int, block int32) {
	want := p.expected.Engines[engine]
	e := p.view(p.engines[engine], engineSize)
	count := &unsafe.Slice(want.RefCount, want.Total)[block]
	*count--
	counts := p.view(u64(e, unsafe.Offsetof(want.RefCount)), 4*uint64(want.Total))
	put32(counts, uintptr(4*block), *count)
	if *count == 0 {
		want.Free++
		put32(e, unsafe.Offsetof(want.Free), want.Free)
	}
}

// find returns the sequence with the id and its address in the submission.
func (p *player) find(engine int, id int32) (*course.Sequence, uint64) {
	want := p.expected.Engines[engine]
	node := p.engines[engine] + activeOffset
	for n := want.Active.Next; n != &want.Active; n = n.Next {
		node = u64(p.view(node, 16), 8)
		if s := sequenceOf(n); s.ID == id {
			return s, node - nodeOffset
		}
	}
	return nil, 0
}

func put32(b []byte, at uintptr, n int32) { binary.NativeEndian.PutUint32(b[at:], uint32(n)) }

func put64(b []byte, at uintptr, n uint64) { binary.NativeEndian.PutUint64(b[at:], n) }

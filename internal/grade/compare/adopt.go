package compare

import (
	"slices"
	"unsafe"

	"llmmemory/internal/course"
	"llmmemory/internal/course/oracle"
)

// adopt makes the submission's state the expected one, so that a trace can show another mistake.
// It returns false if the state is too broken to go on.
func (p *player) adopt() bool {
	for i := range p.engines {
		have := p.engines[i] != 0
		switch want := p.expected.Engines[i]; {
		case want == nil && !have:
		case want == nil: // it was kept although it had to be freed
			p.engines[i] = 0
		case !have:
			p.expected.Forget(i)
		default:
			state, whole := p.engineState(i)
			if !whole || p.expected.Adopt(i, state) != nil {
				return false
			}
		}
	}
	return true
}

// engineState reads engine i. whole is false if it cannot be read to its end.
func (p *player) engineState(i int) (s oracle.EngineState, whole bool) {
	e := p.chunk(p.engines[i], engineSize)
	if e == nil || p.isLarge(i) || u64(e, unsafe.Offsetof(course.Engine{}.Pool)) != p.pools[i]+oracle.Slack {
		return s, false
	}
	seen := map[uint64]bool{}
	s.Total, s.Free = i32(e, unsafe.Offsetof(course.Engine{}.Total)), i32(e, freeOffset)
	counts := p.chunk(u64(e, refCountOffset), 4*uint64(uint32(s.Total)))
	if counts == nil || s.Total < 0 {
		return s, false
	}
	for block := range s.Total {
		s.RefCount = append(s.RefCount, i32(counts, uintptr(4*block)))
	}
	head := p.engines[i] + activeOffset
	before := head
	for node := range p.nodes(i) {
		bytes := p.view(node-nodeOffset, sequenceSize)
		sequence, whole := p.values(bytes, seen)
		if !whole || u64(bytes, uintptr(nodeOffset)) != before {
			return s, false
		}
		s.Sequences = append(s.Sequences, sequence)
		before = node
	}
	if u64(p.view(before, 16), 8) != head || u64(p.view(head, 16), 0) != before {
		return s, false
	}
	s.Pool = slices.Clone(p.subject.At(p.pools[i], uint64(len(p.expected.Pools[i]))))
	return s, true
}

// values reads one sequence. A table that another sequence also has, which seen knows, is no
// state to go on from: a change through one sequence would change both.
func (p *player) values(bytes []byte, seen map[uint64]bool) (s oracle.SequenceState, whole bool) {
	s.ID = i32(bytes, unsafe.Offsetof(course.Sequence{}.ID))
	s.KVCount = i32(bytes, unsafe.Offsetof(course.Sequence{}.KVCount))
	l1 := p.chunk(u64(bytes, blockTableOffset), l1Size)
	if l1 == nil || seen[u64(bytes, blockTableOffset)] {
		return s, false
	}
	seen[u64(bytes, blockTableOffset)] = true
	for slot := range s.Tables {
		address := u64(l1, uintptr(8*slot))
		if address == 0 {
			continue
		}
		l2 := p.chunk(address, l2Size)
		if l2 == nil || seen[address] {
			return s, false
		}
		seen[address] = true
		s.Tables[slot] = new([course.L2Size]int32)
		for j := range s.Tables[slot] {
			s.Tables[slot][j] = i32(l2, uintptr(4*j))
		}
	}
	return s, true
}

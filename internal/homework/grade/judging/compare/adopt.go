package compare

import (
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
)

// adopt makes the submission's state the expected one, so that a trace can show another mistake.
// It returns false if the state is too broken to go on.
func (p *player) adopt() bool {
	for i := range p.engines {
		p.adoptPool(i)
		have := p.engines[i] != 0
		switch want := p.expected.Engines[i]; {
		case want == nil && !have:
		case want == nil: // it was kept although it had to be freed
			p.engines[i] = 0
		case !have:
			p.expected.Forget(i)
		case p.isLarge(i):
			return false
		default:
			if !p.sound(i) { // before a list without an end is read
				return false
			}
			state, broken := p.read(i, func([]oracle.SequenceState, int32) bool { return true })
			if broken != "" || p.expected.Adopt(i, state) != nil {
				return false
			}
		}
	}
	return true
}

// adoptPool makes the bytes of pool i the expected ones, even if its engine does not exist.
func (p *player) adoptPool(i int) {
	adopt := func(to []byte, from uint64) { copy(to, p.subject.At(from, uint64(len(to)))) }
	adopt(p.expected.Pools[i], p.pools[i])
	if p.isLarge(i) {
		adopt(p.expected.Ends[i][0], p.pools[i])
		adopt(p.expected.Ends[i][1], p.ends[i])
	}
}

// read returns engine i as values, as far as it can be read. keep gets the sequences so far and the next id,
// and reports whether this sequence is kept. broken names a pointer that could not be followed, or is empty.
func (p *player) read(i int, keep func([]oracle.SequenceState, int32) bool) (state oracle.EngineState, broken string) {
	e := checked[engineStruct](p, p.engines[i])
	if e == nil {
		return state, "engine"
	}
	state.Total, state.Free = e.total, e.free
	state.Pool = slices.Clone(p.subject.At(p.pools[i], uint64(len(p.expected.Pools[i]))))
	blocks := (len(p.expected.Pools[i]) - 2*oracle.Slack) / course.BlockSize // not those that the process says it has
	state.RefCount = slices.Clone(p.refCounts(e.refCount, int32(blocks)))
	if state.RefCount == nil {
		return state, "engine->ref_count"
	}
	last := &e.active
	for _, s := range p.sequences(i) {
		kept := keep(state.Sequences, s.id)
		values, whole := p.values(s, kept)
		if kept {
			state.Sequences = append(state.Sequences, values)
		}
		if !whole {
			return state, "the tables of " + SequenceName(s.id)
		}
		last = &s.node
	}
	if next := last.next; next != p.head(i) && checked[sequenceStruct](p, next-nodeOffset) == nil {
		return state, "engine->active_seqs"
	}
	return state, ""
}

// values returns a sequence, without its tables if it is not kept, and whether all of it can be read.
func (p *player) values(from *sequenceStruct, kept bool) (s oracle.SequenceState, whole bool) {
	s.ID, s.KVCount = from.id, from.kvCount
	l1 := checked[l1Table](p, from.blockTable)
	if l1 == nil {
		return s, false
	}
	for slot, address := range l1 {
		if address == 0 {
			continue
		}
		l2 := checked[course.L2Table](p, address)
		if l2 == nil {
			return s, false
		}
		if kept {
			table := [course.L2Size]int32(*l2)
			s.Tables[slot] = &table
		}
	}
	return s, true
}

// sound requires a pool, a counterpart of each link (so that the list has an end), and no table that is used twice
// (so that a change of one sequence does not change another).
func (p *player) sound(i int) bool {
	e := view[engineStruct](p, p.engines[i])
	if e.pool != p.pools[i]+oracle.Slack {
		return false
	}
	seen := map[uint64]bool{}
	twice := func(address uint64) bool {
		before := seen[address]
		seen[address] = address != 0
		return before
	}
	before := p.head(i)
	for at, s := range p.sequences(i) {
		if s.node.prev != before || twice(s.blockTable) || slices.ContainsFunc(view[l1Table](p, s.blockTable)[:], twice) {
			return false
		}
		before = at + nodeOffset
	}
	return e.active.prev == before
}

package compare

import (
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
)

// adopt copies the submission's state to the oracle. The following calls are then compared with what they should do in
// that state. adopt returns false if the trace cannot go on, because the state is inconsistent or has a large pool.
func (p *player) adopt() bool {
	for i := range p.engines {
		p.adoptPool(i)
		exists := p.engines[i] != 0
		switch want := p.expected.Engines[i]; {
		case want == nil && !exists:
		case want == nil: // it was kept although it had to be freed
			p.engines[i] = 0
		case !exists:
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

// adoptPool copies the bytes of the submission's pool i to the oracle, also if engine i has been destroyed, because
// the pool still exists then.
func (p *player) adoptPool(i int) {
	adopt := func(dst []byte, address uint64) { copy(dst, p.subject.At(address, uint64(len(dst)))) }
	adopt(p.expected.Pools[i], p.pools[i])
	if p.isLarge(i) {
		adopt(p.expected.Ends[i][0], p.pools[i])
		adopt(p.expected.Ends[i][1], p.ends[i])
	}
}

// read copies engine i from the submission's memory. For each sequence it calls keep with the sequences that it has
// kept so far and the id of the next one. keep reports whether the result includes that sequence. If a pointer leads
// to no allocation, read stops and returns the name of the pointer in broken.
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

// values copies a sequence from the submission's memory. It copies the L2 tables only if withTables is set. whole is
// false if a table is not inside one live allocation.
func (p *player) values(seq *sequenceStruct, withTables bool) (s oracle.SequenceState, whole bool) {
	s.ID, s.KVCount = seq.id, seq.kvCount
	l1 := checked[l1Table](p, seq.blockTable)
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
		if withTables {
			table := *l2
			s.Tables[slot] = &table
		}
	}
	return s, true
}

// sound reports whether an oracle can continue from the state of engine i. The engine must have the caller's pool.
// Each link of the list must have a matching link back, so that the list has an end. Each table must have one user,
// because otherwise a change of one sequence would change another.
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
	for address, s := range p.sequences(i) {
		if s.node.prev != before || twice(s.blockTable) || slices.ContainsFunc(view[l1Table](p, s.blockTable)[:], twice) {
			return false
		}
		before = address + nodeOffset
	}
	return e.active.prev == before
}

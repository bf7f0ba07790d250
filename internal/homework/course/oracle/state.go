package oracle

import (
	"errors"
	"unsafe"

	"llmmemory/internal/homework/course"
)

// Find returns the sequence of an engine with this id, or nil if there is none.
func Find(e *course.Engine, id int32) *course.Sequence {
	for s := range e.Sequences {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Entry returns the block to which a sequence maps a logical block, or -1 if the logical block is not mapped.
func Entry(s *course.Sequence, logical int32) int32 {
	if l2 := s.BlockTable[logical/course.L2Size]; l2 != nil {
		return l2[logical%course.L2Size]
	}
	return -1
}

// Counts returns the reference counts of an engine. The slice is the engine's memory.
func Counts(e *course.Engine) []int32 { return unsafe.Slice(e.RefCount, e.Total) }

// A SequenceState is one sequence as values.
type SequenceState struct {
	ID, KVCount int32
	Tables      [course.L1Size]*course.L2Table // nil for a NULL table
}

// An EngineState is one engine as values.
type EngineState struct {
	Total, Free int32
	RefCount    []int32
	Sequences   []SequenceState // in the order of the list
	Pool        []byte          // with Slack on both sides
}

// ErrState is wrapped if calls cannot continue from an EngineState.
var ErrState = errors.New("not a state to go on from")

// Adopt replaces engine i by an engine with the given state. If the state is inconsistent (course.Engine.Check) or
// does not fit the engine's pool, Adopt returns an error and changes nothing.
func (w *World) Adopt(i int, state EngineState) error {
	pool := w.Pools[i]
	if state.Total != int32((len(pool)-2*Slack)/course.BlockSize) || len(state.RefCount) != int(state.Total) || len(state.Pool) != len(pool) {
		return ErrState
	}
	used, live := w.arena.used, w.arena.live
	e := (*course.Engine)(w.arena.take(int(unsafe.Sizeof(course.Engine{}))))
	counts := w.arena.take(4 * int(state.Total))
	copy(unsafe.Slice((*int32)(counts), state.Total), state.RefCount)
	*e = course.Engine{Pool: unsafe.Pointer(&pool[Slack]), Total: state.Total, Free: state.Free, RefCount: (*int32)(counts)}
	e.Active.Prev, e.Active.Next = &e.Active, &e.Active
	for _, seq := range state.Sequences {
		s := (*course.Sequence)(w.arena.take(int(unsafe.Sizeof(course.Sequence{}))))
		l1 := (*course.L1Table)(w.arena.take(int(unsafe.Sizeof(course.L1Table{}))))
		*l1 = course.L1Table{}
		*s = course.Sequence{ID: seq.ID, KVCount: seq.KVCount, BlockTable: l1}
		for slot, table := range seq.Tables {
			if table != nil {
				l1[slot] = w.newTable()
				*l1[slot] = *table
			}
		}
		last := e.Active.Prev
		s.Node = course.Node{Prev: last, Next: &e.Active}
		last.Next, e.Active.Prev = &s.Node, &s.Node
	}
	if err := e.Check(); err != nil {
		w.arena.used, w.arena.live = used, live
		return errors.Join(ErrState, err)
	}
	w.Engines[i] = e
	copy(pool, state.Pool)
	return nil
}

// Forget drops engine i without a call.
func (w *World) Forget(i int) { w.Engines[i] = nil }

func (w *World) newTable() *course.L2Table {
	l2 := (*course.L2Table)(w.arena.take(int(unsafe.Sizeof(course.L2Table{}))))
	w.arena.live++
	for i := range l2 {
		l2[i] = -1
	}
	return l2
}

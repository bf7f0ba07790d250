package oracle

import (
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

// A ChangeKind is what a Change does.
type ChangeKind int

// The kinds of changes. A change other than Unlinked keeps the state consistent. For example, mapping a block increments
// the block's count, and decrements the number of free blocks if the block was free; unmapping does the reverse.
const (
	NewEngine    ChangeKind = iota // over a pool of A bytes and B MiB (trace.Op.Pool)
	DropEngine                     // and all its sequences
	NewSequence                    // id A, kv_count B, no tables; the last of the list
	DropSequence                   // id A: its blocks are unmapped, its tables freed
	Unlinked                       // id A leaves the list and is not freed
	Renamed                        // id A becomes B
	Counted                        // kv_count of id A becomes B
	NewTable                       // id A, slot B: a table without a mapped entry
	Moved                          // id A: the tables in slots B and C change places
	Relocated                      // id A: the table that B names moves to another address (trace.Relocate)
	Mapped                         // id A: logical blocks B, B+1, ... to blocks C, C+1, ..., N of them
	Unmapped                       // id A: logical block B
	Recorded                       // block A, record B becomes C
)

// A Change is one write by the tester to an engine.
type Change struct {
	Kind       ChangeKind
	Engine     int
	A, B, C, N int32
}

// Write plays a step in which the grader writes to the submission's memory, and returns the changes. The step is a call
// whose work the grader does (op.Given), or a write from outside. If a correct submission would refuse the call, there
// are no changes.
func (w *World) Write(op trace.Op) []Change {
	if op.Given {
		var all []Change
		for single := range op.Each {
			all = append(all, w.given(single)...)
		}
		return all
	}
	e := w.Engines[op.Engine]
	if e == nil {
		return nil
	}
	s := Find(e, op.A)
	if s == nil {
		return nil
	}
	one := func(kind ChangeKind, b, c int32) []Change {
		return []Change{{Kind: kind, Engine: op.Engine, A: op.A, B: b, C: c}}
	}
	switch op.Kind {
	case trace.Move:
		slot, other := wrap(op.B, course.L1Size), wrap(op.C, course.L1Size)
		s.BlockTable[slot], s.BlockTable[other] = s.BlockTable[other], s.BlockTable[slot]
		return one(Moved, slot, other)
	case trace.Relocate:
		return one(Relocated, wrap(op.B, 18), 0)
	case trace.Rename:
		if Find(e, op.B) == nil {
			s.ID = op.B
			return one(Renamed, op.B, 0)
		}
	case trace.Unlink:
		s.Node.Prev.Next, s.Node.Next.Prev = s.Node.Next, s.Node.Prev
		return one(Unlinked, 0, 0)
	case trace.Count:
		s.KVCount = min(max(0, op.B), course.MaxLogicalBlocks*course.KVPerBlock)
		return one(Counted, s.KVCount, 0)
	default:
		return w.table(op, e, s)
	}
	return nil
}

func (w *World) table(op trace.Op, e *course.Engine, s *course.Sequence) []Change {
	switch op.Kind {
	case trace.Hole:
		return w.unmap(op.Engine, e, s, wrap(op.B, course.MaxLogicalBlocks))
	case trace.Table:
		slot := wrap(op.B, course.L1Size)
		if s.BlockTable[slot] != nil {
			return nil
		}
		s.BlockTable[slot] = w.newTable()
		return []Change{{Kind: NewTable, Engine: op.Engine, A: s.ID, B: slot}}
	case trace.Map:
		if block := slices.Index(Counts(e), 0); block >= 0 {
			return w.remap(op.Engine, e, s, wrap(op.B, course.MaxLogicalBlocks), int32(block))
		}
	case trace.Place:
		if uint32(op.C) < uint32(e.Total) && Counts(e)[op.C] == 0 {
			return w.remap(op.Engine, e, s, wrap(op.B, course.MaxLogicalBlocks), op.C)
		}
	case trace.Share:
		other, logical := Find(e, op.B), wrap(op.C, course.MaxLogicalBlocks)
		if other == nil || other == s {
			return nil
		}
		if block := Entry(s, logical); block >= 0 {
			return w.remap(op.Engine, e, other, logical, block)
		}
	}
	return nil
}

// remap maps a logical block to a block. If the logical block is mapped to another block, remap unmaps it first.
func (w *World) remap(engine int, e *course.Engine, s *course.Sequence, logical, block int32) []Change {
	if Entry(s, logical) == block {
		return nil
	}
	changes := w.unmap(engine, e, s, logical)
	if s.BlockTable[logical/course.L2Size] == nil {
		s.BlockTable[logical/course.L2Size] = w.newTable()
	}
	s.BlockTable[logical/course.L2Size][logical%course.L2Size] = block
	if counts := Counts(e); counts[block] == 0 {
		e.Free--
	}
	Counts(e)[block]++
	return append(changes, Change{Kind: Mapped, Engine: engine, A: s.ID, B: logical, C: block, N: 1})
}

func (w *World) unmap(engine int, e *course.Engine, s *course.Sequence, logical int32) []Change {
	block := Entry(s, logical)
	if block < 0 {
		return nil
	}
	count := &Counts(e)[block]
	s.BlockTable[logical/course.L2Size][logical%course.L2Size] = -1
	if *count--; *count == 0 {
		e.Free++
	}
	return []Change{{Kind: Unmapped, Engine: engine, A: s.ID, B: logical}}
}

func wrap(n int32, limit uint32) int32 { return int32(uint32(n) % limit) }

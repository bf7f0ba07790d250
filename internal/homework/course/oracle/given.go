package oracle

import (
	"slices"
	"unsafe"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

func (w *World) given(op trace.Op) []Change {
	e := w.Engines[op.Engine]
	if e == nil && op.Kind != trace.Init {
		return nil
	}
	if op.Kind == trace.Append {
		return w.givenAppend(op, e)
	}
	if w.play(op).Err != nil {
		return nil
	}
	switch op.Kind {
	case trace.Init:
		return []Change{{Kind: NewEngine, Engine: op.Engine, A: op.A, B: op.B}}
	case trace.Create:
		return sequence(op.Engine, Find(e, op.A))
	case trace.Fork:
		return sequence(op.Engine, Find(e, op.B))
	case trace.Free:
		return []Change{{Kind: DropSequence, Engine: op.Engine, A: op.A}}
	default:
		return []Change{{Kind: DropEngine, Engine: op.Engine}}
	}
}

// sequence returns the changes that create s: one for the sequence, one for each run of mapped blocks, and one for each
// L2 table without mapped blocks.
func sequence(engine int, s *course.Sequence) []Change {
	all := []Change{{Kind: NewSequence, Engine: engine, A: s.ID, B: s.KVCount}}
	for slot, l2 := range s.BlockTable {
		if l2 == nil {
			continue
		}
		mapped := false
		for j, block := range l2 {
			if block < 0 {
				continue
			}
			mapped = true
			logical := int32(slot*course.L2Size + j)
			if last := &all[len(all)-1]; last.Kind == Mapped && last.B+last.N == logical && last.C+last.N == block {
				last.N++
				continue
			}
			all = append(all, Change{Kind: Mapped, Engine: engine, A: s.ID, B: logical, C: block, N: 1})
		}
		if !mapped {
			all = append(all, Change{Kind: NewTable, Engine: engine, A: s.ID, B: int32(slot)})
		}
	}
	return all
}

// givenAppend plays an append and returns its changes: the new mapping of the logical block, if it changes, the written
// records, and the new kv_count.
func (w *World) givenAppend(op trace.Op, e *course.Engine) []Change {
	s := Find(e, op.A)
	if s == nil || s.KVCount < 0 || s.KVCount >= course.MaxLogicalBlocks*course.KVPerBlock {
		return nil
	}
	logical, id := s.KVCount/course.KVPerBlock, s.ID
	before := Entry(s, logical)
	pool := unsafe.Slice((*int32)(e.Pool), int(e.Total)*course.KVPerBlock)
	var old []int32
	if free := slices.Index(Counts(e), 0); free >= 0 {
		old = append(old, pool[free*course.KVPerBlock:][:course.KVPerBlock]...)
	}
	if w.play(op).Err != nil {
		return nil
	}
	var all []Change
	after := Entry(s, logical)
	if after != before {
		if before >= 0 {
			all = append(all, Change{Kind: Unmapped, Engine: op.Engine, A: id, B: logical})
		}
		all = append(all, Change{Kind: Mapped, Engine: op.Engine, A: id, B: logical, C: after, N: 1})
		for i, record := range pool[int(after)*course.KVPerBlock:][:course.KVPerBlock] {
			if record != old[i] {
				all = append(all, Change{Kind: Recorded, Engine: op.Engine, A: after, B: int32(i), C: record})
			}
		}
	} else {
		all = append(all, Change{Kind: Recorded, Engine: op.Engine, A: after, B: (s.KVCount - 1) % course.KVPerBlock, C: op.B})
	}
	return append(all, Change{Kind: Counted, Engine: op.Engine, A: id, B: s.KVCount})
}

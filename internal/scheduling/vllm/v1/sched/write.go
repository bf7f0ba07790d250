package sched

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

func (s *Scheduler) write(step *Step) {
	b := s.batch
	step.reset(s.groups)
	if len(s.running) > 0 {
		step.NumCommonPrefixBlocks = s.running[0].kv.NumCommonPrefixBlocks(step.NumCommonPrefixBlocks)
	} else {
		for range s.groups {
			step.NumCommonPrefixBlocks = append(step.NumCommonPrefixBlocks, 0)
		}
	}
	n := len(b.rows)
	step.Rows = slices.Grow(step.Rows, n)[:n]
	step.BlockStarts = slices.Grow(step.BlockStarts, n*s.groups)[:n*s.groups]
	step.BlockEnds = slices.Grow(step.BlockEnds, n*s.groups)[:n*s.groups]
	for i := range b.rows {
		s.writeRow(step, i, &b.rows[i])
	}
	fence := uint64(0)
	if s.defersFrees() {
		fence = b.seq
	}
	s.cache.Take(&s.pending, fence)
	b.copies = append(b.copies[:0], s.pending.Copies...)
	s.writeCopies(step)
	b.preempted = append(b.preempted, s.preempted...)
	b.finished = append(b.finished, s.finished...)
	step.Preempted = append(step.Preempted, b.preempted...)
	step.Finished = append(step.Finished, b.finished...)
	for _, x := range s.extensions {
		x.write(step)
	}
	s.preempted, s.finished = s.preempted[:0], s.finished[:0]
}

func (s *Scheduler) writeRow(step *Step, i int, e *entry) {
	b := s.batch
	step.Rows[i] = Row{
		ID: e.id, UserData: e.r.userData, Kind: e.kind, Samples: e.samples,
		NumComputedTokens: int(e.computed), NumScheduledTokens: int(e.tokens), NumDraftTokens: int(e.drafts),
	}
	if e.drafts > 0 {
		step.Drafts = append(step.Drafts, b.drafts[e.draft:e.draft+e.drafts]...)
	}
	step.NumScheduledTokens += int(e.tokens)
	for g := range s.groups {
		table := e.r.kv.Table(g)
		start := 0
		if e.kind == KindRunning {
			start = b.tableLens[int(e.firstLen)+g]
		}
		if start < len(table) {
			step.Blocks = append(step.Blocks, table[start:]...)
		}
		step.BlockStarts[i*s.groups+g] = start
		step.BlockEnds[i*s.groups+g] = len(step.Blocks)
		step.Slots[g] = appendSlots(step.Slots[g], table, s.blockSizes[g], int(e.computed), int(e.tokens))
	}
}

// appendSlots appends the slots of n tokens, the first of which is at position start. The slot of the token at position
// p is
//
//	table[p/size] × size + p mod size
//
// or -1 if the table has no block for p or has the null block.
func appendSlots(dst []int64, table []int32, size, start, n int) []int64 {
	index := int(uint32(start) / uint32(size)) // several times as fast as a division of 64 bits
	offset := start - index*size
	if n == 1 && index < len(table) && table[index] != pool.Null {
		return append(dst, int64(table[index])*int64(size)+int64(offset)) // a decode
	}
	for n > 0 {
		id := pool.Null
		if index < len(table) {
			id = table[index]
		}
		for ; offset < size && n > 0; offset++ {
			slot := int64(-1)
			if id != pool.Null {
				slot = int64(id)*int64(size) + int64(offset)
			}
			dst = append(dst, slot)
			n--
		}
		index, offset = index+1, 0
	}
	return dst
}

func (s *Scheduler) writeCopies(step *Step) {
	b := s.batch
	for _, c := range b.copies {
		pair := Copy{Src: c.Src, Dst: c.Dst, Group: c.Group, Index: -1}
		if c.Request != nil {
			pair.ID, pair.Index = ID(c.Request.Tag), c.Index
			if r := s.requests.Get(c.Request.Tag); r.status != running || s.sendsWhole(pair.ID) {
				pair.Index = -1
			}
		}
		step.Copies = append(step.Copies, pair)
	}
}

// sendsWhole reports whether the step sends the whole block table of a request to the worker. Such a table already
// names the destination blocks of the step's copies, so the worker need not put them into its table.
func (s *Scheduler) sendsWhole(id ID) bool {
	return slices.ContainsFunc(s.batch.rows, func(e entry) bool { return e.id == id && e.kind != KindRunning })
}

package sched

import (
	"fmt"
	"hash/maphash"

	"llmmemory/internal/vllm/v1/kvcache"
)

// A worker knows of the scheduler's state only what its steps say. Each place
// of its memory holds a number that depends on all tokens up to it.
type worker struct {
	groups []kvcache.Group
	seed   maphash.Seed
	tables map[ID][][]int32
	memory []map[int64]uint64 // by group and slot
}

func newWorker(groups []kvcache.Group) *worker {
	w := &worker{groups: groups, seed: maphash.MakeSeed(), tables: map[ID][][]int32{}}
	for range groups {
		w.memory = append(w.memory, map[int64]uint64{})
	}
	return w
}

// run does what a model runner does with a step, and returns an error if a row
// attends to what is not its own. tokens are those of a request, without
// drafts.
func (w *worker) run(step *Step, tokens func(ID) []int32) error {
	for _, id := range append(step.Preempted, step.Finished...) {
		delete(w.tables, id)
	}
	for _, c := range step.Copies {
		size := int64(w.groups[c.Group].BlockSize)
		for i := range size {
			w.memory[c.Group][int64(c.Dst)*size+i] = w.memory[c.Group][int64(c.Src)*size+i]
		}
		if table := w.tables[c.ID]; table != nil && c.Index >= 0 {
			table[c.Group][c.Index] = c.Dst
		}
	}
	slot, draft := 0, 0
	var values [][]uint64
	for i, row := range step.Rows {
		w.update(step, i)
		all := append(append([]int32{}, tokens(row.ID)...), step.Drafts[draft:draft+row.NumDraftTokens]...)
		draft += row.NumDraftTokens
		values = append(values, w.values(all))
		for g := range w.groups {
			for k := range row.NumScheduledTokens {
				if s := step.Slots[g][slot+k]; s >= 0 {
					w.memory[g][s] = values[i][row.NumComputedTokens+k]
				}
			}
		}
		slot += row.NumScheduledTokens
	}
	for i, row := range step.Rows {
		if err := w.attend(row, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// update enters the blocks of a row into the table.
func (w *worker) update(step *Step, i int) {
	row := step.Rows[i]
	if row.Kind != KindRunning {
		w.tables[row.ID] = make([][]int32, len(w.groups))
	}
	for g := range w.groups {
		start := step.BlockStarts[i*len(w.groups)+g]
		table := w.tables[row.ID]
		table[g] = append(table[g][:start:start], step.RowBlocks(i, g)...)
	}
}

func (w *worker) values(tokens []int32) []uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	values := make([]uint64, len(tokens))
	for i, t := range tokens {
		fmt.Fprint(&h, t, " ")
		values[i] = h.Sum64()
	}
	return values
}

// attend reads what the last token of the row attends to.
func (w *worker) attend(row Row, values []uint64) error {
	last := row.NumComputedTokens + row.NumScheduledTokens - 1
	for g, spec := range w.groups {
		from := 0
		switch spec.Kind {
		case kvcache.SlidingWindow:
			from = max(0, last-spec.Window+1)
		case kvcache.ChunkedLocal:
			from = last - last%spec.Chunk
		case kvcache.Mamba:
			continue
		}
		for p := from; p <= last; p++ {
			id := w.tables[row.ID][g][p/spec.BlockSize]
			if w.memory[g][int64(id)*int64(spec.BlockSize)+int64(p%spec.BlockSize)] != values[p] {
				return fmt.Errorf("request %#x, group %d, token %d of %d: block %d holds something else", uint64(row.ID), g, p, last+1, id)
			}
		}
	}
	return nil
}

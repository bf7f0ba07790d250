package sched

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// zeroing is the extension that lists the blocks to zero (RULES.md §21).
type zeroing struct {
	noExtension
	s     *Scheduler
	skip  []int32        // blocks that loads of this step write
	open  []int32        // new blocks that no step has listed yet
	loose bool           // a request without a row may have new blocks, or a request may have lost new blocks
	held  map[int32]bool // for writeOpen: the blocks of all requests; true if the request has a row
}

// write lists the new blocks of rows in step.ZeroBlocks. It leaves out blocks that a load of this step writes, because
// such a load can happen before the worker zeroes blocks. Loads of later steps can get a block of a row only after this
// step has run.
func (z *zeroing) write(step *Step) {
	s := z.s
	old := len(z.open)
	z.open = append(z.open, s.pending.NewBlocks...)
	s.pending.NewBlocks = s.pending.NewBlocks[:0]
	if len(z.skip) > 0 {
		z.open = slices.DeleteFunc(z.open, func(id int32) bool { return slices.Contains(z.skip, id) })
	}
	if !s.differs.zeroing || old == 0 && !z.loose {
		step.ZeroBlocks = append(step.ZeroBlocks, z.open...)
		z.open = z.open[:0]
	} else {
		z.writeOpen(step)
	}
	z.skip, z.loose = z.skip[:0], false
	s.batch.zero = append(s.batch.zero, step.ZeroBlocks...)
}

// writeOpen lists in step.ZeroBlocks those blocks of z.open that belong to a row of the step. Blocks of requests
// without a row stay in z.open. Other blocks are dropped from it: a request that gets such a block later gets it as a
// new block.
func (z *zeroing) writeOpen(step *Step) {
	s := z.s
	clear(z.held)
	for _, r := range append(s.allWaiting(), s.running...) {
		z.note(r, false)
	}
	for i := range s.batch.rows {
		z.note(s.batch.rows[i].r, true)
	}
	z.open = slices.DeleteFunc(z.open, func(id int32) bool {
		row, held := z.held[id]
		if row {
			step.ZeroBlocks = append(step.ZeroBlocks, id)
			delete(z.held, id) // so that id is listed once
		}
		return row || !held
	})
}

func (z *zeroing) note(r *request, row bool) {
	for g := range z.s.groups {
		for _, id := range r.kv.Table(g) {
			z.held[id] = row
		}
	}
}

// loading adds to z.skip the blocks to which a load for r writes: the blocks of tokens from start to end-1, and states.
// Blocks of states are never in z.open when they are new. But after a failed step, which vLLM does not have, z.open can
// have such a block from the time when it had keys and values.
func (z *zeroing) loading(r *request, start, end int) {
	for g, size := range z.s.blockSizes {
		table := r.kv.Table(g)
		switch {
		case z.s.cache.Config.Groups[g].Kind != kvcache.Mamba:
			z.skip = append(z.skip, blocksOf(table, size, start, end)...)
		case z.s.differs.zeroing:
			z.skip = append(z.skip, table...)
		}
	}
}

// blocksOf returns the blocks of a table that contain tokens from start to end-1 (vLLM's
// get_zeroing_block_ids_in_range).
func blocksOf(table []int32, size, start, end int) []int32 {
	return table[min(start/size, len(table)):min((end+size-1)/size, len(table))]
}

// failed puts the listed blocks of failed steps into z.open again. It leaves out the blocks of waiting requests,
// because loads write these.
func (z *zeroing) failed(batches []*batch) {
	s := z.s
	var loaded []int32
	for _, r := range s.allWaiting() {
		for g := range s.groups {
			loaded = append(loaded, r.kv.Table(g)...)
		}
	}
	for _, b := range batches {
		for _, id := range b.zero {
			if !slices.Contains(loaded, id) {
				z.open = append(z.open, id)
			}
		}
	}
}

func (z *zeroing) released(*request) { z.loose = true }

// noteUnwritten makes the blocks of r count as new again that contain tokens at or after position computed, because
// these blocks were not loaded.
func (c *connector) noteUnwritten(r *request, computed int) {
	r.kv.NoteUnwritten(computed)
	if c.s.zero != nil {
		c.s.zero.loose = true
	}
}

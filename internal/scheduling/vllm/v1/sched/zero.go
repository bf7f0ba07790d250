package sched

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// zeroing is the extension that lists the blocks to zero (RULES.md §21).
type zeroing struct {
	noExtension
	s        *Scheduler
	skip     []int32        // blocks that loads of this step write
	unlisted []int32        // new blocks that no step has listed yet
	loose    bool           // a request without a row may have new blocks, or a request may have lost new blocks
	held     map[int32]bool // for writeUnlisted: the blocks of all requests; true if the request has a row
}

// write lists the new blocks of rows in step.ZeroBlocks; with Config.AsVLLM it lists all new blocks. It leaves out the
// blocks that the asynchronous loads of this step (step.Loads) write. The worker may execute the load before it zeroes
// the blocks, and would then zero what was loaded.
//
// Loads of later steps cannot write to the listed blocks too early. A row keeps its blocks until this step has run, and
// by then the worker has zeroed them.
func (z *zeroing) write(step *Step) {
	s := z.s
	old := len(z.unlisted)
	z.unlisted = append(z.unlisted, s.pending.NewBlocks...)
	s.pending.NewBlocks = s.pending.NewBlocks[:0]
	if len(z.skip) > 0 {
		z.unlisted = slices.DeleteFunc(z.unlisted, func(id int32) bool { return slices.Contains(z.skip, id) })
	}
	if !s.differs.zeroing || old == 0 && !z.loose {
		step.ZeroBlocks = append(step.ZeroBlocks, z.unlisted...)
		z.unlisted = z.unlisted[:0]
	} else {
		z.writeUnlisted(step)
	}
	z.skip, z.loose = z.skip[:0], false
	s.batch.zero = append(s.batch.zero, step.ZeroBlocks...)
}

// writeUnlisted moves blocks from z.unlisted to step.ZeroBlocks. It moves a block if the block belongs to a request
// that has a row in the step. Blocks of other requests stay in z.unlisted. Blocks that belong to no waiting or running
// request are removed from z.unlisted. When a request gets such a block, the block is recorded as new again.
func (z *zeroing) writeUnlisted(step *Step) {
	s := z.s
	clear(z.held)
	for _, r := range append(s.allWaiting(), s.running...) {
		z.note(r, false)
	}
	for i := range s.batch.rows {
		z.note(s.batch.rows[i].r, true)
	}
	z.unlisted = slices.DeleteFunc(z.unlisted, func(id int32) bool {
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

// loading adds to z.skip the blocks to which a load for r writes: the blocks of the tokens [start, end), and blocks of
// Mamba states.
//
// Usually z.unlisted has no block of a Mamba state, because new blocks of Mamba groups are not zeroed. But after a
// failed step, z.unlisted has the blocks that this step should have zeroed. The load can write a Mamba state to such a
// block. (In vLLM no step fails, so vLLM does not skip blocks of Mamba states.)
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

// blocksOf returns the blocks of a table that contain the tokens [start, end) (vLLM's get_zeroing_block_ids_in_range).
func blocksOf(table []int32, size, start, end int) []int32 {
	return table[min(start/size, len(table)):min((end+size-1)/size, len(table))]
}

// failed puts the listed blocks of failed steps into z.unlisted again. It leaves out the blocks of waiting requests,
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
				z.unlisted = append(z.unlisted, id)
			}
		}
	}
}

func (z *zeroing) released(*request) { z.loose = true }

// noteUnwritten makes blocks of r count as new again, because they were not loaded. These are the blocks that contain
// the token at position pos or later tokens.
func (c *connector) noteUnwritten(r *request, pos int) {
	r.kv.NoteUnwritten(pos)
	if c.s.zero != nil {
		c.s.zero.loose = true
	}
}

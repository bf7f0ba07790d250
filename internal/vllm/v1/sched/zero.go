package sched

import (
	"slices"

	"llmmemory/internal/vllm/v1/kvcache"
)

// zeroing is what a scheduler knows of blocks to zero (RULES.md §21).
type zeroing struct {
	skip  []int32 // into which loads of the step go
	open  []int32 // that are to be told, some to requests without a row yet
	loose bool    // somebody may have lost blocks that are new, or has some without a row
	held  map[int32]bool
	tails []kvcache.Tail
}

// writeZeroBlocks says which blocks to zero: the new ones, but for those into which a load
// of this step goes, which could come before. Told are only blocks of rows of the
// step: a load of a later step can get no such block before this step has run.
func (s *Scheduler) writeZeroBlocks(step *Step) {
	if !s.config.ZeroNewBlocks {
		return
	}
	z := &s.zero
	old := len(z.open)
	z.open = s.cache.TakeNewBlocks(z.open)
	if len(z.skip) > 0 {
		z.open = slices.DeleteFunc(z.open, func(id int32) bool { return slices.Contains(z.skip, id) })
	}
	if s.config.AsVLLM || old == 0 && !z.loose {
		step.ZeroBlocks = append(step.ZeroBlocks, z.open...)
		z.open = z.open[:0]
	} else {
		s.tellOpen(step)
	}
	z.skip, z.loose = z.skip[:0], false
	s.batch.zero = append(s.batch.zero, step.ZeroBlocks...)
}

// tellOpen tells the open blocks of rows, keeps those of other requests, and drops
// those of nobody, which are told when somebody gets them.
func (s *Scheduler) tellOpen(step *Step) {
	z := &s.zero
	clear(z.held)
	for _, r := range append(s.allWaiting(), s.running...) {
		s.hold(r, false)
	}
	for i := range s.batch.rows {
		s.hold(s.batch.rows[i].r, true)
	}
	z.open = slices.DeleteFunc(z.open, func(id int32) bool {
		row, held := z.held[id]
		if row {
			step.ZeroBlocks = append(step.ZeroBlocks, id)
			delete(z.held, id) // once is enough
		}
		return row || !held
	})
}

// hold notes the blocks of r, and whether it has a row.
func (s *Scheduler) hold(r *request, row bool) {
	for g := range s.groups {
		for _, id := range r.kv.Table(g) {
			s.zero.held[id] = row
		}
	}
}

// skipStates has blocks of r not zeroed that a state is loaded into. They are never new as such, but
// a failed step can have told one as a block of keys and values. vLLM has no steps that fail.
func (s *Scheduler) skipStates(r *request) {
	if s.config.AsVLLM {
		return
	}
	for g := range s.groups {
		if s.config.Cache.Groups[g].Kind == kvcache.Mamba {
			s.zero.skip = append(s.zero.skip, r.kv.Table(g)...)
		}
	}
}

// zeroAgain has the blocks told once more that failed steps have told, but for those into
// which something was loaded since.
func (s *Scheduler) zeroAgain(told []int32) {
	if len(told) == 0 {
		return
	}
	var loaded []int32
	for _, r := range s.allWaiting() {
		for g := range s.groups {
			loaded = append(loaded, r.kv.Table(g)...)
		}
	}
	for _, id := range told {
		if !slices.Contains(loaded, id) {
			s.zero.open = append(s.zero.open, id)
		}
	}
}

// noteUnwritten has the blocks of r zeroed that hold tokens from computed on: what should
// have been loaded into them has not come.
func (s *Scheduler) noteUnwritten(r *request, computed int) {
	s.cache.NoteUnwritten(r.kv, computed)
	s.zero.loose = true
}

// writeTails hands out the states at the ends of prompts that a connector can send.
func (s *Scheduler) writeTails(step *Step) {
	if !s.config.Connector.Producer {
		return
	}
	s.zero.tails = s.cache.TakeTails(s.zero.tails[:0])
	for _, t := range s.zero.tails {
		id := ID(t.Request.Tag)
		step.Tails = append(step.Tails, Tail{id, s.requests.Get(uint64(id)).userData, t.Group, t.Block, t.NumTokens})
	}
	clear(s.zero.tails)
}

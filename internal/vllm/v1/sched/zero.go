package sched

import (
	"slices"

	"llmmemory/internal/vllm/v1/kvcache"
)

// zeroing is what a scheduler knows of blocks to zero (RULES.md §21).
type zeroing struct {
	skip  []int32 // into which loads of the step go
	again []int32 // that failed steps have told
	tails []kvcache.Tail
}

// writeZeroBlocks says which blocks to zero: the new ones, but for those into which a load
// of this step goes, which could come before.
func (s *Scheduler) writeZeroBlocks(step *Step) {
	if !s.config.ZeroNewBlocks {
		return
	}
	z := &s.zero
	if len(z.again) > 0 { // what has been loaded since, or is being loaded, stays
		var loaded []int32
		for _, r := range s.allWaiting() {
			loaded = s.cache.BlocksIn(loaded, r.kv, 0, s.longest)
		}
		step.ZeroBlocks = without(append(step.ZeroBlocks, z.again...), loaded)
	}
	step.ZeroBlocks = without(s.cache.TakeNewBlocks(step.ZeroBlocks), z.skip)
	z.skip, z.again = z.skip[:0], z.again[:0]
	s.batch.zero = append(s.batch.zero, step.ZeroBlocks...)
}

func without(ids, others []int32) []int32 {
	if len(others) == 0 {
		return ids
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return slices.Contains(others, id) })
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

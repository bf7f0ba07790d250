package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/vllm/v1/kvcache"
)

// A batch is the step that is being scheduled, and then waits for its update.
type batch struct {
	groups  int
	rows    []entry
	drafts  []int32
	from    []int // lengths of tables before the new blocks, row by row
	budget  int   // tokens left
	starved bool  // somebody was preempted
	prefill bool  // a running request that is not through its prompt is in it
	copies  []kvcache.Copy
}

// An entry is a request in a batch.
type entry struct {
	r      *request
	id     ID // r may be used again when the update comes
	kind   Kind
	tokens int
	draft  int // first one in batch.drafts
	drafts int
	from   int // first of its lengths in batch.from
}

// Schedule fills step with the next step (vllm/v1/RULES.md §14). The step before must
// have been updated, unless it had no rows.
func (s *Scheduler) Schedule(step *Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return fmt.Errorf("%w: the last step has not been updated", ErrOrder)
	}
	b := &s.batch
	*b = batch{
		groups: b.groups, budget: s.config.MaxNumBatchedTokens, copies: b.copies[:0],
		rows: b.rows[:0], drafts: b.drafts[:0], from: b.from[:0],
	}
	if s.pause == PauseAll {
		b.budget = 0
	}
	s.cache.StartStep()
	s.scheduleRunning()
	if !b.starved && s.pause == PauseNone {
		s.admitWaiting()
	}
	s.write(step)
	for i := range b.rows {
		r := b.rows[i].r
		r.kv.SetNumComputedTokens(r.kv.NumComputedTokens() + b.rows[i].tokens)
		r.prefill = r.kv.NumComputedTokens() < r.kv.NumTokens()
	}
	s.open = len(b.rows) > 0
	return nil
}

// scheduleRunning is the first pass: what runs goes on, and the blocks it needs
// are taken from the least important ones.
func (s *Scheduler) scheduleRunning() {
	b := &s.batch
	for at := 0; at < len(s.running) && b.budget > 0; at++ {
		r := s.running[at]
		n := s.runningTokens(r)
		if n <= 0 {
			continue // the next one may go on
		}
		var ok bool
		if at, ok = s.makeRoom(r, n, at); !ok {
			return
		}
		e := entry{r: r, id: r.id, kind: KindRunning, tokens: n}
		if r.fresh {
			e.kind = KindNew
			r.fresh = false
		}
		s.takeDrafts(r, &e)
		s.schedule(e)
		b.prefill = b.prefill || r.prefill
	}
}

// runningTokens is how many tokens a running request computes in this step.
func (s *Scheduler) runningTokens(r *request) int {
	computed := r.kv.NumComputedTokens()
	n := r.kv.NumTokens() + len(r.drafts) - computed
	if limit := s.config.LongPrefillTokenThreshold; limit > 0 {
		n = min(n, limit)
	}
	n = min(n, s.batch.budget, s.longest-computed-1)
	n = s.mamba.clip(r.kv, computed, n)
	return s.leaveLookahead(r, computed, n)
}

// leaveLookahead does not end a chunk so close to the end of the prompt that
// draft modules would read past it (multi-module MTP).
func (s *Scheduler) leaveLookahead(r *request, computed, n int) int {
	ahead := s.cache.Config().PrefillLookahead
	if left := r.kv.NumTokens() - computed - n; 0 < left && left < ahead {
		n -= ahead - left
	}
	return max(n, 0)
}

// makeRoom allocates n tokens for r, which is number at of running, and
// preempts others until that succeeds, or r itself. It returns the place of r
// and whether r got its blocks.
func (s *Scheduler) makeRoom(r *request, n, at int) (int, bool) {
	a := kvcache.Alloc{NumNewTokens: n, NumLookaheadTokens: s.config.NumLookaheadTokens}
	for {
		from := s.lengths(r)
		if s.allocate(r, &a) {
			return at, true
		}
		s.batch.from = s.batch.from[:from]
		s.batch.starved = true
		victim := s.victim()
		if victim < at {
			at--
		}
		v := s.running[victim]
		s.running = slices.Delete(s.running, victim, victim+1)
		s.unschedule(v)
		s.preempt(v)
		if v == r {
			return at, false
		}
	}
}

// allocate panics on misuse: only this package's own mistakes lead there.
func (s *Scheduler) allocate(r *request, a *kvcache.Alloc) bool {
	ok, err := s.cache.Allocate(r.kv, a)
	if err != nil {
		panic("sched: " + err.Error())
	}
	return ok
}

// lengths notes how long the tables of r are, and returns where.
func (s *Scheduler) lengths(r *request) int {
	from := len(s.batch.from)
	for g := range s.batch.groups {
		s.batch.from = append(s.batch.from, len(r.kv.Table(g)))
	}
	return from
}

// victim is the running request that loses its blocks: the last one, or the
// first in the list of those with the greatest priority and arrival.
func (s *Scheduler) victim() int {
	worst := len(s.running) - 1
	if s.config.Policy == FCFS {
		return worst
	}
	worst = 0
	for i, r := range s.running {
		w := s.running[worst]
		if r.priority > w.priority || r.priority == w.priority && r.arrival > w.arrival {
			worst = i
		}
	}
	return worst
}

// unschedule takes a victim out of the batch, if it is there, and returns its
// tokens to the budget.
func (s *Scheduler) unschedule(r *request) {
	b := &s.batch
	i := slices.IndexFunc(b.rows, func(e entry) bool { return e.r == r })
	if i < 0 {
		return
	}
	b.budget += b.rows[i].tokens
	if s.config.ForgetUnscheduled {
		s.cache.ForgetFrom(r.kv, r.kv.NumComputedTokens())
	}
	b.rows = slices.Delete(b.rows, i, i+1)
}

// takeDrafts schedules the drafts that n tokens reach, and drops the others.
func (s *Scheduler) takeDrafts(r *request, e *entry) {
	if len(r.drafts) == 0 {
		return
	}
	if n := e.tokens + r.kv.NumComputedTokens() - r.kv.NumTokens(); n > 0 {
		s.setDrafts(e, r.drafts[:min(n, len(r.drafts))])
	}
	r.drafts = r.drafts[:0]
}

func (s *Scheduler) setDrafts(e *entry, drafts []int32) {
	e.draft, e.drafts = len(s.batch.drafts), len(drafts)
	s.batch.drafts = append(s.batch.drafts, drafts...)
}

// schedule puts e into the batch. The lengths of its tables were noted last.
func (s *Scheduler) schedule(e entry) {
	b := &s.batch
	e.from = len(b.from) - b.groups
	b.rows = append(b.rows, e)
	b.budget -= e.tokens
}

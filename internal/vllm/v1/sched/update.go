package sched

import (
	"fmt"
	"slices"
)

// An Outcome is what became of a step. Its arrays are used again.
type Outcome struct {
	Kept []int32 // sampled tokens that count, by row: those behind a stop do not
	Done []Done  // requests that have finished, in the order of rows
}

// A Done request is gone: its ID names nothing any more.
type Done struct {
	ID     ID
	Reason Reason
}

// Update takes what the model sampled in the step scheduled last: counts[i]
// tokens for row i, one after the other in tokens. A row whose prompt is not
// finished has none; one with drafts has the accepted ones and one more. Rows
// whose request was aborted or preempted since are passed over. If the numbers
// do not fit the step, nothing has changed.
func (s *Scheduler) Update(counts, tokens []int32, out *Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Kept, out.Done = out.Kept[:0], out.Done[:0]
	if err := s.checkSampled(counts, tokens); err != nil {
		return err
	}
	s.open = false
	for i := range s.batch.rows {
		e := &s.batch.rows[i]
		n := int(counts[i])
		kept := s.updateRow(e, tokens[:n], out)
		out.Kept = append(out.Kept, int32(kept))
		tokens = tokens[n:]
	}
	if len(out.Done) > 0 {
		s.running = slices.DeleteFunc(s.running, func(r *request) bool { return r.id == 0 })
	}
	s.batch.rows = s.batch.rows[:0]
	return nil
}

func (s *Scheduler) checkSampled(counts, tokens []int32) error {
	rows := s.batch.rows
	if !s.open {
		rows = nil
	}
	if len(counts) != len(rows) {
		return fmt.Errorf("%w: tokens for %d rows, the step has %d", ErrOrder, len(counts), len(rows))
	}
	sum := 0
	for i := range rows {
		n := int(counts[i])
		most := 1 + rows[i].drafts
		if r := rows[i].r; r.id == rows[i].id && r.prefill && !r.dropping {
			most = 0
		}
		if n < 0 || n > most {
			return fmt.Errorf("%w: %d tokens for row %d: want 0 to %d", ErrRequest, n, i, most)
		}
		sum += n
	}
	if sum != len(tokens) {
		return fmt.Errorf("%w: %d tokens sampled, the counts add up to %d", ErrRequest, len(tokens), sum)
	}
	for i, t := range tokens {
		if t < 0 {
			return fmt.Errorf("%w: token %d is %d", ErrRequest, i, t)
		}
	}
	return nil
}

// updateRow appends the sampled tokens of one row and returns how many count.
func (s *Scheduler) updateRow(e *entry, tokens []int32, out *Outcome) int {
	r := e.r
	if r.id != e.id {
		return 0 // finished since
	}
	if r.dropping {
		r.dropping = false
		return 0
	}
	if e.drafts > 0 && len(tokens) > 0 {
		if rejected := e.drafts - (len(tokens) - 1); rejected > 0 {
			s.reject(r, rejected)
		}
	}
	for i := range tokens {
		s.cache.Append(r.kv, tokens[i])
		if reason, stop := s.stopped(r); stop {
			out.Done = append(out.Done, Done{r.id, reason})
			s.finish(r)
			return i + 1
		}
	}
	return len(tokens)
}

// reject moves back over drafts that the model did not sample.
func (s *Scheduler) reject(r *request, n int) {
	computed := r.kv.NumComputedTokens() - n
	if s.config.ReturnDrafts {
		if s.cache.Rollback(r.kv, computed) == nil {
			return
		}
	}
	r.kv.SetNumComputedTokens(computed)
}

// SetDrafts gives requests the draft tokens to verify in their next step:
// counts[i] for ids[i], one after the other in tokens. Requests that have
// finished, or are not through their prompt, are passed over (vllm/v1/RULES.md §14).
func (s *Scheduler) SetDrafts(ids []ID, counts, tokens []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) != len(counts) {
		return fmt.Errorf("%w: drafts for %d requests with %d counts", ErrRequest, len(ids), len(counts))
	}
	sum := 0
	for i, n := range counts {
		if n < 0 || int(n) > s.config.NumSpeculativeTokens {
			return fmt.Errorf("%w: %d drafts for request %d of the list: want 0 to %d", ErrRequest, n, i, s.config.NumSpeculativeTokens)
		}
		sum += int(n)
	}
	if sum != len(tokens) {
		return fmt.Errorf("%w: %d drafts, the counts add up to %d", ErrRequest, len(tokens), sum)
	}
	for i, id := range ids {
		n := int(counts[i])
		if r := s.requests.Get(uint64(id)); r != nil {
			r.drafts = r.drafts[:0]
			if !r.prefill {
				r.drafts = append(r.drafts, tokens[:n]...)
			}
		}
		tokens = tokens[n:]
	}
	return nil
}

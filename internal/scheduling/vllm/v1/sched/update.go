package sched

import (
	"fmt"
	"slices"
)

// An Outcome is the result of an Update. The next Update with the same Outcome reuses its arrays.
type Outcome struct {
	Kept []int32 // by row: number of sampled tokens that count; tokens after a stop do not count
	Done []Done  // requests that have finished, in the order of rows
}

// A Done is a request that has finished. Its ID is not valid any more, unless its blocks are kept for a transfer.
type Done struct {
	ID       ID
	UserData uint64
	Reason   Reason
}

// Update takes the tokens that the model sampled in the oldest step in flight. tokens has the tokens of all rows, row
// after row, and counts[i] is the number of tokens of row i. A row that does not sample has none. A row with drafts has
// the accepted drafts and one more token. If a row that samples has none, its request goes back to its state before the
// step, and its later rows in flight are ignored. A request with a Mamba state cannot go back, so it is preempted.
//
// Update skips rows of requests that were aborted since Schedule; vllm/v1/RULES.md §15 has the rule for preempted
// requests. If the numbers do not match the step, or a token is negative, Update returns an error and changes nothing.
func (s *Scheduler) Update(counts, tokens []int32, out *Outcome) error {
	s.mu.Lock()
	defer s.unlock()
	out.Kept, out.Done = out.Kept[:0], out.Done[:0]
	if err := s.checkSampled(counts, tokens); err != nil {
		return err
	}
	if s.flight.n == 0 {
		return nil
	}
	b, sampled := s.flight.batches[0], 0
	s.cache.EndStep(b.seq)
	for i := range b.rows {
		n := int(counts[i])
		kept := s.updateRow(&b.rows[i], tokens[:n], out)
		out.Kept = append(out.Kept, int32(kept))
		sampled += kept
		tokens = tokens[n:]
	}
	s.counters.Tokens += sampled
	s.flight.pop()
	if len(out.Done) > 0 {
		s.running = slices.DeleteFunc(s.running, func(r *request) bool { return r.id == 0 || r.status == parked })
	}
	return nil
}

func (s *Scheduler) checkSampled(counts, tokens []int32) error {
	var rows []entry
	if s.flight.n > 0 {
		rows = s.flight.batches[0].rows
	}
	if len(counts) != len(rows) {
		return fmt.Errorf("%w: tokens for %d rows, the step has %d", ErrOrder, len(counts), len(rows))
	}
	sum := 0
	for i := range rows {
		n := int(counts[i])
		limit := 0
		if rows[i].samples {
			limit = 1 + int(rows[i].drafts)
		}
		if n < 0 || n > limit {
			return fmt.Errorf("%w: %d tokens for row %d: want 0 to %d", ErrRequest, n, i, limit)
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

func (s *Scheduler) updateRow(e *entry, tokens []int32, out *Outcome) (kept int) {
	r := e.r
	if r.id != e.id {
		return 0 // finished since
	}
	stale := s.retire(r, e)
	if r.status == parked || stale && r.dropStale {
		return 0
	}
	if !e.samples {
		s.encoder.computed(r)
		return 0
	}
	if len(tokens) == 0 {
		if stale {
			r.dropStale = true // later rows depend on this one
		} else {
			s.undoRow(r, e)
		}
		return 0
	}
	if e.drafts > 0 {
		s.counters.Drafts += int(e.drafts)
		s.counters.DraftsAccepted += len(tokens) - 1
		if rejected := int(e.drafts) - (len(tokens) - 1); rejected > 0 && !stale {
			s.reject(r, rejected)
		}
	}
	s.encoder.computed(r)
	var reason Reason
	for stop := false; kept < len(tokens) && !stop; kept++ {
		r.kv.Append(tokens[kept])
		reason, stop = s.stopped(r)
	}
	if s.config.AsyncScheduling && !stale { // a block can be scheduled before its tokens are known
		r.placeholders -= kept
		s.store(r, r.kv.NumComputedTokens-r.placeholders)
	}
	if reason != 0 {
		if r.status != running {
			r.queue.remove(r)
		}
		out.Done = append(out.Done, Done{r.id, r.userData, reason})
		s.finish(r)
	}
	return kept
}

// retire subtracts the tokens of the row e from those in flight. It reports whether the row is stale: r has lost its
// blocks or gone back since the row was scheduled.
func (s *Scheduler) retire(r *request, e *entry) (stale bool) {
	r.inFlight -= int(e.tokens)
	if r.stale == 0 {
		if e.admitted {
			s.connector.forgetMatch(r)
		}
		return false
	}
	r.stale -= int(e.tokens)
	return true
}

func (s *Scheduler) store(r *request, tokens int) {
	if err := s.cache.Store(r.kv, tokens); err != nil {
		panic("sched: " + err.Error())
	}
}

func (s *Scheduler) reject(r *request, n int) {
	r.placeholders = max(r.placeholders-n, 0)
	computed := r.kv.NumComputedTokens - n
	if s.config.ReturnDrafts {
		if r.kv.Rollback(computed) == nil {
			return
		}
	}
	r.kv.NumComputedTokens = computed
}

// SetDrafts gives requests draft tokens to verify in their next step. tokens has the drafts of all requests, one after
// the other, and counts[i] is the number of drafts of request ids[i]. SetDrafts skips requests that have finished.
// Requests that wait, compute their prompt or have a row in flight get no drafts, and lose the drafts that they have
// (vllm/v1/RULES.md §14). With asynchronous scheduling, requests with rows in flight also get drafts, and only the
// counts matter: the worker replaces the drafts, which are placeholders.
func (s *Scheduler) SetDrafts(ids []ID, counts, tokens []int32) error {
	s.mu.Lock()
	defer s.unlock()
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
		if r := s.live(id); r != nil {
			r.drafts = r.drafts[:0]
			if s.takesDrafts(r) {
				r.drafts = append(r.drafts, tokens[:n]...)
			}
		}
		tokens = tokens[n:]
	}
	return nil
}

// takesDrafts reports whether the next row of r can verify drafts. r must be running and must have computed its prompt.
// Without asynchronous scheduling, r must have no row in flight. vLLM checks only the prompt, so it also gives drafts
// to waiting requests.
func (s *Scheduler) takesDrafts(r *request) bool {
	if !s.differs.drafts {
		return !r.prefill
	}
	return !r.prefill && r.status == running && (s.config.AsyncScheduling || r.inFlight == 0)
}

package engine

import (
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// update tells the scheduler and the users what was sampled. Rows that were
// cancelled while the model computed count for nothing.
func (e *Engine) update(s *step) {
	e.failNotFinite(s)
	now := time.Now()
	s.counts, s.sampled = s.counts[:0], s.sampled[:0]
	for i := range s.rows {
		r := &s.rows[i]
		before := len(s.sampled)
		if len(r.tokens) > 0 && r.q.id != 0 {
			s.sampled = r.scheduled(s.sampled)
		}
		s.counts = append(s.counts, int32(len(s.sampled)-before))
		if len(r.drafts) > 0 {
			s.report.Drafts++
			s.report.DraftTokens += len(r.drafts)
		}
	}
	if err := e.sched.Update(s.counts, s.sampled, &s.outcome); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	for i := range s.rows {
		if r := &s.rows[i]; s.counts[i] > 0 {
			e.deliver(r, &s.report, now)
		}
	}
}

// ErrNotFinite is the error of a request for which the model computed logits that are NaN or +Inf, or all -Inf.
var ErrNotFinite = errors.New("the model's logits are not finite numbers")

// failNotFinite ends the requests from whose logits no token can be chosen. Others in the batch go on.
func (e *Engine) failNotFinite(s *step) {
	for _, d := range s.draws {
		if !d.finite {
			e.failAnswers(s.rows[d.row].q.stream, ErrNotFinite)
		}
	}
}

// failAnswers ends the answers of a request that go on with an error.
func (e *Engine) failAnswers(s *Stream, err error) {
	for _, q := range s.answers {
		if !q.done {
			e.drop(q)
			s.send(Event{Index: q.index, Finish: FinishError, Err: err})
			report := q.report(string(FinishError))
			report.NotFinite = errors.Is(err, ErrNotFinite) && s.unfinished() == 0
			e.observer.Finished(report)
		}
	}
}

// scheduled appends the tokens that the scheduler gets for a row.
func (r *row) scheduled(to []int32) []int32 {
	if r.q.waiting > 0 {
		return append(to, r.first())
	}
	for _, t := range r.tokens {
		to = append(to, t.ID)
	}
	return to
}

// first is, of the first tokens of several answers, one that goes on, so that the
// others can be forked from it.
func (r *row) first() int32 {
	for i, a := range r.q.stream.answers {
		if !a.done && !a.endsWith(r.tokens[i].ID) {
			return r.tokens[i].ID
		}
	}
	return r.tokens[0].ID
}

// deliver gives the tokens of a row to their answers.
func (e *Engine) deliver(r *row, report *StepReport, now time.Time) {
	q := r.q
	if !q.stream.through {
		q.stream.through = true
		report.PromptTokens += q.prompt
		report.CachedTokens += q.stream.CachedTokens()
		report.ExternalTokens += q.outside.loaded
	}
	if q.waiting == 0 {
		for i := range len(r.tokens) - 1 {
			report.Accepted[i]++
		}
		for i := 0; i < len(r.tokens) && !q.done; i++ {
			e.give(q, r.tokens[i:i+1], now)
			report.GenerationTokens++
		}
		return
	}
	// The row has come through the prompt of several answers. It goes on as the
	// first one that does not end at once, and the others are forked from it.
	e.unforked -= q.waiting
	q.waiting = 0
	parent := q.id
	token := r.first()
	delete(e.live, parent)
	q.id = 0
	var owner *sequence
	for i, a := range q.stream.answers {
		if a.done {
			continue
		}
		ends := a.endsWith(r.tokens[i].ID)
		if !ends && owner == nil && r.tokens[i].ID == token {
			owner, a.id = a, parent
			for g, table := range q.tables {
				a.tables[g] = append(a.tables[g][:0], table...)
			}
			e.live[parent] = a
		} else if !ends {
			e.fork(a, parent, r.tokens[i].ID)
		}
	}
	for i, a := range q.stream.answers {
		if !a.done {
			e.give(a, r.tokens[i:i+1], now)
			report.GenerationTokens++
		}
	}
	if owner == nil {
		e.sched.Abort(parent)
	}
}

// endsWith reports whether an answer that has said nothing yet ends with this
// token.
func (q *sequence) endsWith(id int32) bool {
	probe := *q
	probe.text = q.text.empty()
	_, finish, _ := probe.say(id, len(q.tokens)+1)
	return finish != ""
}

// fork has the scheduler share the blocks of the parent with an answer that went
// another way.
func (e *Engine) fork(a *sequence, parent sched.ID, token int32) {
	id, err := e.sched.Fork(parent, sched.Child{Last: token})
	if err != nil {
		a.done = true
		a.stream.send(Event{Index: a.index, Finish: FinishError, Err: fmt.Errorf("an answer could not be forked: %w", err)})
		e.observer.Finished(a.report(string(FinishError)))
		return
	}
	a.id = id
	e.live[id] = a
}

// give appends one token to an answer and tells the user.
func (e *Engine) give(q *sequence, token []Token, now time.Time) {
	text, finish, reason := q.take(token[0].ID)
	event := Event{Index: q.index, Text: text, Tokens: token, Finish: finish, StopReason: reason}
	if q.last.IsZero() {
		q.first = now
		e.observer.FirstToken(now.Sub(q.arrived))
		if q.index == 0 {
			event.Prompt = q.stream.prompt
		}
	} else {
		e.observer.NextToken(now.Sub(q.last))
	}
	q.last = now
	q.stream.noteToken(now)
	if finish != "" {
		e.drop(q)
		e.observer.Finished(q.report(string(finish)))
	}
	q.stream.send(event)
}

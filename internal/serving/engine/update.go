package engine

import (
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// update reports sampled tokens to the scheduler and delivers them. If a token could not be sampled, it ends the
// request. If a sequence was cancelled while the model computed, it discards the tokens.
func (e *Engine) update(s *step) {
	for _, d := range s.draws {
		if d.err != nil {
			e.failAnswers(s.rows[d.row].q.stream, d.err)
		}
	}
	now := time.Now()
	s.counts, s.sampled = s.counts[:0], s.sampled[:0]
	for i := range s.rows {
		r := &s.rows[i]
		before := len(s.sampled)
		switch {
		case r.q.id == 0:
		case r.last && r.q.pool != nil:
			s.sampled = append(s.sampled, 0) // the scheduler ends a request with a token
		case len(r.tokens) > 0:
			s.sampled = r.appendSampled(s.sampled)
		}
		s.counts = append(s.counts, int32(len(s.sampled)-before))
		if len(r.drafts) > 0 {
			s.report.Drafts++
			s.report.DraftTokens += len(r.drafts)
		}
	}
	must(e.sched.Update(s.counts, s.sampled, &s.outcome))
	for i := range s.rows {
		if r := &s.rows[i]; s.counts[i] > 0 {
			e.deliverRow(r, &s.report, now)
		}
	}
}

// ErrNotFinite is the error of a request if a logit is NaN or +Inf, or if all logits of a token are -Inf.
var ErrNotFinite = errors.New("the model's logits are not finite numbers")

// failAnswers ends the unfinished answers to a request with an error.
func (e *Engine) failAnswers(s *Stream, err error) { e.endAnswers(s, err, string(FinishError)) }

// endAnswers ends the unfinished answers to a request with an error, and reports the given reason to the observer.
func (e *Engine) endAnswers(s *Stream, err error, reason string) {
	for _, q := range s.answers {
		if !q.done {
			e.drop(q)
			s.send(Event{Index: q.index, Finish: FinishError, Err: err})
			report := q.report(reason)
			report.NotFinite = errors.Is(err, ErrNotFinite) && s.unfinished() == 0
			e.observer.Finished(report)
		}
	}
}

// appendSampled appends the tokens that the engine reports to the scheduler for the row. These are the
// sampled tokens or, if answers will be forked, only forkToken.
func (r *row) appendSampled(dst []int32) []int32 {
	if r.q.waiting > 0 {
		return append(dst, r.forkToken())
	}
	for _, t := range r.tokens {
		dst = append(dst, t.ID)
	}
	return dst
}

// forkToken returns the token to report to the scheduler when the prompt of a request with several answers is computed.
// At this time each answer gets its first token. The scheduler still has one request for all answers. One of the
// answers continues this request: the first unfinished answer that does not end with its first token. forkToken returns
// the first token of this answer. If there is no such answer, forkToken returns the token of answer 0.
func (r *row) forkToken() int32 {
	for i, a := range r.q.stream.answers {
		if !a.done && !a.endsWith(r.tokens[i].ID) {
			return r.tokens[i].ID
		}
	}
	return r.tokens[0].ID
}

// deliverRow delivers the tokens of a row.
func (e *Engine) deliverRow(r *row, report *StepReport, now time.Time) {
	q := r.q
	if !q.stream.prefilled {
		q.stream.prefilled = true
		report.PromptTokens += q.prompt
		report.CachedTokens += q.stream.CachedTokens()
		report.ExternalTokens += q.tiers.loaded
	}
	if q.pool != nil {
		e.deliverPooled(q, now)
		return
	}
	if q.waiting == 0 {
		for i := range len(r.tokens) - 1 {
			report.Accepted[i]++
		}
		for i := 0; i < len(r.tokens) && !q.done; i++ {
			e.deliverToken(q, r.tokens[i:i+1], now)
			report.GenerationTokens++
		}
		return
	}
	parent, owned := e.forkAnswers(r)
	for i, a := range q.stream.answers {
		if !a.done {
			e.deliverToken(a, r.tokens[i:i+1], now)
			report.GenerationTokens++
		}
	}
	if !owned {
		e.sched.Abort(parent)
	}
}

// forkAnswers gives each answer its own request in the scheduler when the prompt is computed. Answers that
// end with their first token get none. parent is the request that computed the prompt. The first answer that
// does not end continues parent, and the others are forked from it. If all answers end, owned is false and no
// answer continues parent.
func (e *Engine) forkAnswers(r *row) (parent sched.ID, owned bool) {
	q := r.q
	e.unforked -= q.waiting
	q.waiting = 0
	parent = q.id
	token := r.forkToken()
	delete(e.live, parent)
	q.id = 0
	for i, a := range q.stream.answers {
		if a.done || a.endsWith(r.tokens[i].ID) {
			continue
		}
		if owned || r.tokens[i].ID != token {
			e.fork(a, parent, r.tokens[i].ID)
			continue
		}
		owned, a.id = true, parent
		for g, table := range q.tables {
			a.tables[g] = append(a.tables[g][:0], table...)
		}
		e.live[parent] = a
	}
	return parent, owned
}

// endsWith reports whether q ends if its first token is the given one. It must be called before this token is
// appended to q.tokens.
func (q *sequence) endsWith(id int32) bool {
	probe := *q
	probe.text = q.text.empty()
	_, finish, _ := probe.outputAfter(id, len(q.tokens)+1)
	return finish != ""
}

// fork makes the scheduler share the blocks of parent with the answer a, whose first token is the given one.
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

// deliverToken appends a token to an answer and sends it, with the text that it completes, to the answer's stream.
func (e *Engine) deliverToken(q *sequence, token []Token, now time.Time) {
	q.tokens = append(q.tokens, token[0].ID)
	text, finish, reason := q.outputAfter(token[0].ID, len(q.tokens))
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

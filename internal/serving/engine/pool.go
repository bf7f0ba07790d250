package engine

import (
	"time"

	"llmmemory/internal/serving/engine/pooling"
)

// A request with Pooling is a request of the scheduler with one token to generate, as in vLLM. When its prompt is
// computed, the engine reports a token to the scheduler, which ends the request, and delivers the vector instead.

// needsAllStates reports whether the request needs a result of each token of its prompt, so that no token may be taken
// from the prefix cache or a tier (vLLM's skip_reading_prefix_cache).
func (r *Request) needsAllStates() bool {
	return r.PromptLogprobs >= 0 || r.Pooling == pooling.Mean
}

// requestStates makes the batch compute the hidden states that row r, which has Pooling, needs. The row has n tokens of
// the prompt, which begin at index first of the batch.
func (s *step) requestStates(r *row, first, n int) {
	b, end := &s.input.batch, r.computed+n
	r.firstState, r.pooled = len(b.States), r.q.pool.First(r.computed, end, r.last)
	for position := r.pooled; position < end; position++ {
		b.States = append(b.States, int32(first+position-r.computed))
	}
	r.endState = len(b.States)
}

// pool adds the hidden states of the step, each of size elements, to the vectors of its rows.
func (s *step) pool(states []float32, size int) {
	for i := range s.rows {
		r := &s.rows[i]
		if r.q.pool == nil {
			continue
		}
		r.q.pool.Add(states[r.firstState*size:r.endState*size], size, r.pooled)
	}
}

// deliverPooled ends a request with Pooling and sends its vector.
func (e *Engine) deliverPooled(q *sequence, now time.Time) {
	vector, ok := q.pool.Vector()
	if !ok {
		e.failAnswers(q.stream, ErrNotFinite)
		return
	}
	q.first, q.last = now, now
	q.stream.noteToken(now)
	e.drop(q)
	e.observer.Finished(q.report(string(FinishStop)))
	q.stream.send(Event{Pooled: vector, Finish: FinishStop})
}

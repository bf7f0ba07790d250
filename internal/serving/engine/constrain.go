package engine

import (
	"errors"
	"fmt"
	"math/bits"

	"llmmemory/internal/serving/engine/sampling"
)

// When a token is sampled, the tokens forbidden by the constraint are masked. All earlier tokens of the answer are
// known then, even with two steps in flight, because the loop delivers the tokens of a step before it samples tokens
// in the next step. A mask depends only on the earlier tokens, so the loop computes it while the workers compute the
// layers.

// prepareMasks computes the masks for the tokens that s will sample. It stops when the workers have computed
// the layers. The function sample then computes the other masks, on all threads of the pool. With a Device,
// prepareMasks does not stop. It computes all masks on all threads, and counts the tokens for penalties.
func (e *Engine) prepareMasks(s *step) {
	var job maskJob
	for i := range s.rows {
		r := &s.rows[i]
		if !r.last || r.q.matcher == nil && (e.config.Device == nil || !r.q.params.Penalizes()) {
			continue
		}
		answers := []*sequence{r.q}
		if r.q.waiting > 0 {
			answers = r.q.stream.answers
		}
		for _, q := range answers {
			if !q.isComplete(len(q.tokens)) {
				job = append(job, q)
			}
		}
	}
	if e.config.Device != nil && len(job) > 0 {
		e.config.Pool.Run(len(job), job)
		return
	}
	for i := range job {
		if e.workers.areNearEnd() {
			return
		}
		job.Do(0, i)
	}
}

// A maskJob computes the next masks of sequences, and counts their tokens if they have penalties.
type maskJob []*sequence

// Do computes a mask; see parallel.Task.
func (j maskJob) Do(_, i int) {
	st, _ := j[i].state(j[i].tokens) // sample reports the error
	(&sampling.Choice{Params: &j[i].params, State: st}).Counted()
}

// ErrNoToken is the error of a constrained answer that no token of the model's vocabulary can continue.
var ErrNoToken = errors.New("no token of the model continues an answer of the form that the request asks for")

// prepareMask sets q.mask to the tokens that the request's constraint allows after n tokens of the answer. It also
// excludes the end tokens that MinTokens or IgnoreEOS forbids. If no token would be left, it allows these end tokens
// after all.
func (q *sequence) prepareMask(n int) error {
	if extra := q.matcher.Len() - n; extra > 0 { // sampled, but not delivered
		q.complete, q.masked = 0, 0
		if err := q.matcher.Rollback(extra); err != nil {
			return err
		}
	}
	if q.masked == n+1 {
		return nil
	}
	if q.mask == nil {
		q.mask = make([]uint64, (q.stream.engine.config.Model.VocabSize+63)/64)
	}
	if err := q.matcher.Mask(q.mask); err != nil {
		return fmt.Errorf("a constrained answer: %w", err)
	}
	if n < q.stream.request.MinTokens {
		forbid(q.mask, q.ends)
	}
	if q.stream.request.IgnoreEOS {
		forbid(q.mask, q.stream.engine.config.End)
	}
	token, unique := firstToken(q.mask)
	if token < 0 {
		if err := q.matcher.Mask(q.mask); err != nil {
			return fmt.Errorf("a constrained answer: %w", err)
		}
		token, unique = firstToken(q.mask)
	}
	if token < 0 {
		return fmt.Errorf("after %d tokens, %w", n, ErrNoToken)
	}
	q.onlyToken = -1
	if unique {
		q.onlyToken = token
	}
	q.masked = n + 1
	return nil
}

func forbid(mask []uint64, tokens []int32) {
	for _, id := range tokens {
		mask[id>>6] &^= 1 << (id & 63)
	}
}

// firstToken returns the first token of a mask, or -1 if the mask is empty. The result unique reports whether the mask
// has exactly one token.
func firstToken(mask []uint64) (token int32, unique bool) {
	for i, word := range mask {
		if word == 0 {
			continue
		}
		rest := word & (word - 1)
		for _, w := range mask[i+1:] {
			rest |= w
		}
		return int32(64*i + bits.TrailingZeros64(word)), rest == 0
	}
	return -1, false
}

// follow adds a sampled token to a constrained answer. tokens is the length of the sequence, including this token.
func (q *sequence) follow(id int32, tokens int) error {
	q.masked = 0
	if err := q.matcher.Accept(int(id)); err != nil {
		return fmt.Errorf("a constrained answer: %w", err)
	}
	if q.matcher.Done() {
		q.complete = tokens
	}
	return nil
}

// isComplete reports whether the constraint ends an answer whose sequence has the given length.
func (q *sequence) isComplete(tokens int) bool { return q.complete > 0 && tokens >= q.complete }

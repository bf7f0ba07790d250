package engine

import (
	"errors"
	"fmt"

	"llmmemory/internal/serving/engine/sampling"
)

// The tokens that a constraint forbids are masked when a token is sampled. All earlier tokens of the answer are
// known then, even with two steps in flight: the loop delivers the tokens of a step before it samples those of the
// next step.

// ErrNoToken is the error of a constrained answer that no token of the model's vocabulary can continue.
var ErrNoToken = errors.New("no token of the model continues an answer of the form that the request asks for")

// constrain limits the next token to the tokens that the request's constraint allows. Tokens that the request forbids
// are masked too, unless nothing would be left.
func (q *sequence) constrain(st *sampling.State) error {
	if extra := q.matcher.Len() - len(st.Output); extra > 0 { // sampled, but not delivered
		q.complete = 0
		if err := q.matcher.Rollback(extra); err != nil {
			return err
		}
	}
	if q.mask == nil {
		q.mask = make([]uint64, (q.stream.engine.config.Model.VocabSize+63)/64)
	}
	q.matcher.Mask(q.mask)
	forbid(q.mask, st.Forbidden)
	if q.stream.request.IgnoreEOS {
		forbid(q.mask, q.stream.engine.config.End)
	}
	if isEmpty(q.mask) {
		q.matcher.Mask(q.mask)
	}
	if isEmpty(q.mask) {
		return ErrNoToken
	}
	st.Allowed, st.Forbidden = q.mask, nil
	return nil
}

func forbid(mask []uint64, tokens []int32) {
	for _, id := range tokens {
		mask[id>>6] &^= 1 << (id & 63)
	}
}

func isEmpty(mask []uint64) bool {
	for _, word := range mask {
		if word != 0 {
			return false
		}
	}
	return true
}

// follow adds a sampled token to a constrained answer. tokens is the length of the sequence, including this token.
func (q *sequence) follow(id int32, tokens int) error {
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

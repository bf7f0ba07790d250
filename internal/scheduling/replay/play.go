package replay

import (
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
)

// A player plays operations. apply sets the fields of an operation's result; common adds the fields that all
// results have.
type player interface {
	apply(op *Op, r result) error
	common(op *Op, r result) error
}

func newPlayer(t *Trace, hash blockhash.Function) (player, error) {
	switch h := &t.header; {
	case !t.v1:
		return newOldPlayer(&t.init)
	case h.Type == "pool":
		return newPoolPlayer(&h.Config, hash)
	case h.Type == "manager":
		return newManagerPlayer(&h.Config, hash)
	case h.Type == "scheduler":
		return newSchedulerPlayer(&h.Config, hash)
	}
	return nil, fmt.Errorf("the type is %q: want pool, manager or scheduler", t.header.Type)
}

// Verify plays t and compares every field. It returns the number of compared lines. It stops
// after an operation of V0 that failed, because V0's state differs from then on (v0.md). The error
// is a *Difference, or wraps ErrTrace if an operation of the recording is not possible.
func Verify(t *Trace) (compared int, err error) {
	hash, ok := blockhash.ByName(t.header.Config.Hash)
	if t.v1 && !ok {
		return 0, fmt.Errorf("%w: line 1: there is no hash %q: want le or cbor", ErrTrace, t.header.Config.Hash)
	}
	p, err := newPlayer(t, hash)
	if err != nil {
		return 0, fmt.Errorf("%w: line 1: %w", ErrTrace, err)
	}
	for i := range t.Ops {
		op := &t.Ops[i]
		r := result{}
		if err := safely(p, op, r); err != nil {
			return i + 1, fmt.Errorf("%w: line %d: %w", ErrTrace, op.Line, err)
		}
		if field, want, got, found := differs(op.answerTo(r), r); found {
			return i + 1, &Difference{
				Trace: t.Name, Line: op.Line, Op: op.Name + " " + op.text, Field: field,
				Want: shorten(want, 2000), Got: shorten(got, 2000),
			}
		}
		if op.Error != "" {
			return i + 2, nil
		}
	}
	return len(t.Ops) + 1, nil
}

// safely plays one operation. It turns a panic into an error, because a recording can contain an impossible
// operation, such as one on a request that does not exist.
func safely(p player, op *Op, r result) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%s %s: %v", op.Name, op.text, why)
		}
	}()
	if err := p.apply(op, r); err != nil {
		return err
	}
	return p.common(op, r)
}

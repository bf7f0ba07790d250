package replay

import (
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
)

// A player performs the operations of a recording. play writes the results of an operation to r. state writes the
// fields that every result has. Both panic with a refusal if the operation is impossible.
type player interface {
	play(op *Op, r result)
	state(op *Op, r result)
}

type refusal struct{ error }

func must(err error) {
	if err != nil {
		panic(refusal{err})
	}
}

// mustGet returns v. It panics with a refusal if err is not nil.
func mustGet[T any](v T, err error) T {
	must(err)
	return v
}

func oneOf[T any](problem, name, want string, values map[string]T) T {
	v, ok := values[name]
	if !ok {
		must(fmt.Errorf("%s %q: want %s", problem, name, want))
	}
	return v
}

func unknown(op *Op, recorded string) {
	must(fmt.Errorf("there is no operation %q in a recording of %s", op.Name, recorded))
}

func newPlayer(t *Trace) player {
	if !t.v1 {
		return checkedPlayer{newOldPlayer(&t.init)}
	}
	c := &t.header.Config
	hash := oneOf("there is no hash", c.Hash, "le or cbor", map[string]blockhash.Function{
		"le": blockhash.LE{}, "cbor": blockhash.CBOR("0"),
	})
	return oneOf("the type is", t.header.Type, "pool, manager or scheduler", map[string]func() player{
		"pool": func() player { return newPoolPlayer(c, hash) }, "manager": func() player { return newManagerPlayer(c, hash) },
		"scheduler": func() player { return newSchedulerPlayer(c, hash) },
	})()
}

// Verify plays t and compares the fields of the results (Op.comparedFields). It returns the number of lines that it has
// compared. In a recording of vLLM V0, it stops after an operation that failed. Such an operation may have changed a
// part of vLLM's state, but in this project a failed operation changes nothing (v0.md). The error is a *Difference, or
// wraps ErrTrace if the configuration or an operation of the recording is impossible.
func Verify(t *Trace) (compared int, err error) {
	var p player
	if err := safely(&Op{Line: 1, Name: "configuration"}, func() { p = newPlayer(t) }); err != nil {
		return 0, err
	}
	for i := range t.Ops {
		op, r := &t.Ops[i], result{}
		if err := safely(op, func() { p.play(op, r); p.state(op, r) }); err != nil {
			return i + 1, err
		}
		if field, want, got, found := differs(op.comparedFields(r), r); found {
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

// safely calls f and returns a panic as an error, because a recording may contain an impossible operation, for example
// on a request that does not exist.
func safely(op *Op, f func()) (err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case refusal:
			err = fmt.Errorf("%w: line %d: %w", ErrTrace, op.Line, reason.error)
		default:
			err = fmt.Errorf("%w: line %d: %s %s: %v", ErrTrace, op.Line, op.Name, op.text, reason)
		}
	}()
	f()
	return nil
}

package replay

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"llmmemory/internal/vllm/blockhash"
)

// A player plays operations. It fills the result with the fields that belong
// to the operation, unless it is nil.
type player interface {
	apply(op *Op, r result) error
	common(op *Op, r result)
	around(blocks []int32) string
	forgetEvents()
}

func newPlayer(h *Header, hash blockhash.Function) (player, error) {
	switch h.Type {
	case "pool":
		return newPoolPlayer(&h.Config, hash)
	case "manager":
		return newManagerPlayer(&h.Config, hash)
	case "scheduler":
		return newSchedulerPlayer(&h.Config, hash)
	}
	return nil, fmt.Errorf("there is no player for %q", h.Type)
}

// Verify plays t and compares every field. The error is a *Difference, or
// wraps ErrTrace if the recording asks for something impossible.
func Verify(t *Trace) error {
	hash, ok := blockhash.ByName(t.Header.Config.Hash)
	if !ok {
		return fmt.Errorf("%w: line 1: there is no hash %q: want le or cbor", ErrTrace, t.Header.Config.Hash)
	}
	p, err := newPlayer(&t.Header, hash)
	if err != nil {
		return fmt.Errorf("%w: line 1: %w", ErrTrace, err)
	}
	for i := range t.Ops {
		op := &t.Ops[i]
		r := result{}
		if err := safely(func() error { return p.apply(op, r) }, op.describe); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrTrace, op.Line, err)
		}
		p.common(op, r)
		if field, want, got, found := differs(op.Result, r); found {
			return &Difference{
				Trace: t.Header.Name, Line: op.Line, Op: op.describe(), Field: field,
				Want: shorten(want, 2000), Got: shorten(got, 2000), Around: p.around(numbersIn(want + " " + got)),
			}
		}
	}
	return nil
}

// safely turns a panic, which is how broken invariants show, into an error: only a
// recording that cannot have happened leads there.
func safely(play func() error, describe func() string) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%s: %v", describe(), why)
		}
	}()
	return play()
}

func (op *Op) describe() string {
	shown := *op
	shown.Result = nil
	b, _ := json.Marshal(shown)
	return fmt.Sprintf("operation %d, %s %s", op.I, op.Name, shorten(string(b), 400))
}

var number = regexp.MustCompile(`\b\d{1,9}\b`)

// numbersIn lists what may be block ids in a text.
func numbersIn(s string) (ids []int32) {
	for _, n := range number.FindAllString(s, 12) {
		if v, err := strconv.Atoi(n); err == nil {
			ids = append(ids, int32(v))
		}
	}
	return ids
}

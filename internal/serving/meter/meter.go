package meter

import (
	"context"
	"errors"
	"fmt"
)

// ErrTooLarge means that an input needs more than its Meter allows. Each LimitError is this error, as errors.Is sees it.
var ErrTooLarge = errors.New("the input is too large")

// Limits are what a Meter allows. A limit of 0 allows nothing.
type Limits struct {
	Work  int // in units: a simple step, such as reading a byte or adding a transition to an automaton, is one unit
	Bytes int // that the input makes the program keep, in total
	Depth int // how deep parts of the input nest
}

// A LimitError says which limit was reached. The functions that charge the meter wrap it with the place in the input.
type LimitError struct {
	Limit   Limit
	Allowed int
}

// Limit is one of the fields of Limits.
type Limit int

const (
	Work Limit = iota
	Bytes
	Depth
)

func (e *LimitError) Error() string {
	switch e.Limit {
	case Bytes:
		return fmt.Sprintf("too much memory: more than %d bytes", e.Allowed)
	case Depth:
		return fmt.Sprintf("nested too deep: deeper than %d", e.Allowed)
	}
	return fmt.Sprintf("too much work: more than %d units", e.Allowed)
}

// Is reports whether target is ErrTooLarge.
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// Meter counts what is done with the input of a client. After a method has returned an error, all later calls of the
// methods that return errors return the same error. A Meter is not safe for concurrent use.
type Meter struct {
	ctx         context.Context
	limits      Limits
	work, bytes int // so far
	depth       int // now
	unread      int // charges since the context was read
	err         error
	parent      *Meter // is charged too; or nil
}

// interval is the number of units of work after which the context is read again. A call counts as one unit more.
const interval = 1000

// New returns a meter. After ctx has ended, its methods return the error of ctx, at the latest after interval units.
func New(ctx context.Context, limits Limits) *Meter {
	return &Meter{ctx: ctx, limits: limits, unread: interval}
}

// Within returns a meter for a part of the input, which may take at most the given work. It also charges m. If the
// part takes more work, only the new meter refuses to go on, so the caller can handle the part in another way.
func (m *Meter) Within(work int) *Meter {
	limits := m.limits
	limits.Work = work
	return &Meter{ctx: m.ctx, limits: limits, depth: m.depth, parent: m}
}

// Spend charges units of work. It returns a LimitError if less is left, or if nothing is left. A negative number, which
// results from an overflow, is too much.
func (m *Meter) Spend(units int) error {
	if m.err != nil {
		return m.err
	}
	if m.parent != nil {
		if m.err = m.parent.Spend(units); m.err != nil {
			return m.err
		}
	} else if m.unread++; m.unread >= interval || units >= interval-m.unread {
		m.unread = 0
		if m.err = m.ctx.Err(); m.err != nil {
			return m.err
		}
	} else {
		m.unread += max(0, units)
	}
	if left := m.limits.Work - m.work; units < 0 || left <= 0 || units > left {
		m.err = &LimitError{Work, m.limits.Work}
		return m.err
	}
	m.work += units
	return nil
}

// Keep charges bytes that the input makes the program keep. It charges no work, but needs some to be left.
func (m *Meter) Keep(bytes int) error {
	if m.err != nil {
		return m.err
	}
	if bytes < 0 || bytes > m.limits.Bytes-m.Kept() {
		m.err = &LimitError{Bytes, m.limits.Bytes}
		return m.err
	}
	if err := m.Spend(0); err != nil {
		return err
	}
	for at := m; at != nil; at = at.parent {
		at.bytes += bytes
	}
	return nil
}

// Enter charges one level of nesting, and one unit of work. The caller calls Leave at the end of the part if Enter
// returned no error.
func (m *Meter) Enter() error {
	if err := m.Spend(1); err != nil {
		return err
	}
	if m.depth >= m.limits.Depth {
		m.err = &LimitError{Depth, m.limits.Depth}
		return m.err
	}
	m.depth++
	return nil
}

// Leave ends a level of nesting that Enter has charged.
func (m *Meter) Leave() { m.depth-- }

// Err returns the first error of the meter, or nil.
func (m *Meter) Err() error { return m.err }

// Left returns the units of work that are left.
func (m *Meter) Left() int {
	left := m.limits.Work - m.work
	if m.parent != nil {
		left = min(left, m.parent.Left())
	}
	return max(0, left)
}

// Spent returns the units of work so far.
func (m *Meter) Spent() int { return m.work }

// Kept returns the bytes that have been charged so far, to this meter or to the one that it is a part of.
func (m *Meter) Kept() int {
	if m.parent != nil {
		return m.parent.Kept()
	}
	return m.bytes
}

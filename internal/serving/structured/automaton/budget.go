package automaton

import (
	"context"
	"errors"
)

// ErrTooLarge is the error of an operation that needs more work than its Budget allows.
var ErrTooLarge = errors.New("the constraint needs too much work to compile")

// Budget limits the work of building automata. The work is counted in units: adding one transition to an automaton
// costs about one unit.
type Budget struct {
	left, spent int
	ctx         context.Context // or nil
}

// NewBudget returns a budget of n units.
func NewBudget(n int) *Budget { return &Budget{left: n} }

// NewBudgetUntil returns a budget of n units. After ctx has ended, Spend returns an error.
func NewBudgetUntil(ctx context.Context, n int) *Budget { return &Budget{left: n, ctx: ctx} }

// checkInterval is the number of units that are spent between two checks of the context.
const checkInterval = 1000

// Spend takes n units from the budget. It returns ErrTooLarge if the budget has fewer than n units, and the
// context's error if the context has ended.
func (b *Budget) Spend(n int) error {
	if b.spent += n; b.ctx != nil && b.spent >= checkInterval {
		b.spent = 0
		if err := b.ctx.Err(); err != nil {
			b.left = 0
			return err
		}
	}
	if n > b.left {
		b.left = 0
		return ErrTooLarge
	}
	b.left -= n
	return nil
}

// Left returns the units that remain.
func (b *Budget) Left() int { return b.left }

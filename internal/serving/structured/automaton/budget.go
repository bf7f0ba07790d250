package automaton

import (
	"context"
	"errors"
)

// ErrTooLarge is the error of an operation that needs more work than its Budget allows.
var ErrTooLarge = errors.New("the constraint needs too much work to compile")

// Budget limits the work of building automata. Its unit is about one transition of a state.
type Budget struct {
	left, spent int
	ctx         context.Context // or nil
}

// NewBudget returns a budget of n units.
func NewBudget(n int) *Budget { return &Budget{left: n} }

// NewBudgetUntil returns a budget of n units with which the work stops after ctx has ended.
func NewBudgetUntil(ctx context.Context, n int) *Budget { return &Budget{left: n, ctx: ctx} }

// unitsBetweenLooks is how many units are spent between two looks at the context.
const unitsBetweenLooks = 1000

// Spend takes n units. It returns ErrTooLarge if fewer are left, and the error of the context after that has ended.
func (b *Budget) Spend(n int) error {
	if b.spent += n; b.ctx != nil && b.spent >= unitsBetweenLooks {
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

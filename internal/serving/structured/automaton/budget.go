package automaton

import "errors"

// ErrTooLarge is the error of an operation that needs more work than its Budget allows.
var ErrTooLarge = errors.New("the constraint needs too much work to compile")

// Budget limits the work of building automata. Its unit is about one transition of a state.
type Budget struct{ left int }

// NewBudget returns a budget of n units.
func NewBudget(n int) *Budget { return &Budget{left: n} }

// Spend takes n units, or returns ErrTooLarge if fewer are left.
func (b *Budget) Spend(n int) error {
	if n > b.left {
		b.left = 0
		return ErrTooLarge
	}
	b.left -= n
	return nil
}

// Left returns the units that remain.
func (b *Budget) Left() int { return b.left }

// Package invariants makes programs check their own state. In a program built with
// -tags invariants, the memory managers and schedulers run their Check after each
// call. Without the tag the program contains none of these checks.
//
//	if invariants.Enabled {
//		defer invariants.Hold(s.Check)
//	}
package invariants

import (
	"errors"
	"fmt"
)

// ErrBroken is wrapped by the error that a Check returns for a broken invariant.
var ErrBroken = errors.New("invariant broken")

// Broken returns an error that wraps ErrBroken, with a formatted text.
func Broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// Hold must be deferred. It calls check and panics with the error that check returns. If the deferring function has
// panicked, Hold panics with the same value and does not call check.
func Hold(check func() error) {
	if p := recover(); p != nil {
		panic(p)
	}
	if err := check(); err != nil {
		panic(err)
	}
}

// Package invariants makes programs check their own state: built with -tags
// invariants, the memory managers and schedulers walk their whole state after each
// call, with the Check that their tests call. Without the tag the program contains none
// of these calls.
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

// Broken is an error that wraps ErrBroken and says what a Check found.
func Broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// Hold is deferred. It panics if check finds a broken invariant, as nothing that follows
// could be right. If the call has panicked, Hold panics with the same value and does not
// call check.
func Hold(check func() error) {
	if p := recover(); p != nil {
		panic(p)
	}
	if err := check(); err != nil {
		panic(err)
	}
}

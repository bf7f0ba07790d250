// Package fatal ends a program at its first error. A measurement that fails halfway has no result, so the
// programs in internal/bench need no other handling of errors.
package fatal

import "log"

// If ends the program if there is an error.
func If(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Get returns value, or ends the program if err is not nil.
func Get[T any](value T, err error) T {
	If(err)
	return value
}

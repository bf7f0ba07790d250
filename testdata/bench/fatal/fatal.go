// Package fatal ends a program at the first error, because a measurement that fails halfway has no result.
package fatal

import "log"

// If ends the program if there is an error.
func If(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Get returns value. It ends the program if there is an error.
func Get[T any](value T, err error) T {
	If(err)
	return value
}

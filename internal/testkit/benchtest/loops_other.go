//go:build !amd64

package benchtest

// Read reads memory.
func Read(p []byte) { readPortable(p) }

// Multiply does rounds of multiplications and additions. It returns the number of floating-point operations.
func Multiply(rounds int) (operations int) { return multiplyPortable(rounds) }

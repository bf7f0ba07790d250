//go:build !amd64

package benchtest

// Read reads memory.
func Read(p []byte) { readPortable(p) }

// Multiply does rounds of multiplications and additions, and returns how many
// floating-point operations they are.
func Multiply(rounds int) (operations int) { return multiplyPortable(rounds) }

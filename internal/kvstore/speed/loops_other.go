//go:build !amd64

package speed

// Read reads memory.
func Read(p []byte) { readPortable(p) }

// multiply does rounds of multiplications and additions, and returns how many
// floating-point operations they are.
func multiply(rounds int) (operations int) { return multiplyPortable(rounds) }

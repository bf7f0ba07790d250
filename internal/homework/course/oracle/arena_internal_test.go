package oracle

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Ensure that the memory of a new world is zero, although an earlier world has written to the same memory.
func TestAWorldBeginsWithZeros(t *testing.T) {
	const size = 1000
	for range 3 * cap(spaces) {
		a, err := newArena()
		require.NoError(t, err)
		bytes := unsafe.Slice((*byte)(a.take(size)), size)
		require.Equal(t, make([]byte, size), bytes)
		for i := range bytes {
			bytes[i] = 0xee
		}
		a.used = 0 // as where a state cannot be adopted
		a.close()
	}
}

//go:build cgo

package main

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a panic fails only its own call.
func TestAComputerThatPanickedIsReplaced(t *testing.T) {
	for _, inWorker := range []bool{false, true} {
		var first, second *computer
		note := func(dst **computer) func(c *computer) error {
			return func(c *computer) error { *dst = c; return nil }
		}
		require.Zero(t, compute(3, note(&first)))
		require.Zero(t, compute(3, note(&second)))
		require.Same(t, first, second)
		var waited sync.WaitGroup
		var others [8]*computer
		require.EqualValues(t, internalCode, compute(3, func(c *computer) error {
			for i := range others {
				waited.Go(func() { require.Zero(t, compute(3, note(&others[i]))) })
			}
			if inWorker {
				c.pool.Run(64, panics{})
			}
			panic("on purpose")
		}))
		waited.Wait()
		require.Zero(t, compute(3, note(&second)))
		require.NotSame(t, first, second)
		require.Equal(t, 1, first.pool.Size(), "its workers have ended")
		require.Equal(t, 3, second.pool.Size())
		for _, c := range others {
			require.Same(t, second, c)
		}
	}
}

type panics struct{}

func (panics) Do(int, int) { panic("on purpose") }

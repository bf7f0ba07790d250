package invariants

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABrokenInvariantEndsTheProgram(t *testing.T) {
	broken := errors.New("broken")
	require.PanicsWithError(t, "broken", func() { defer Hold(func() error { return broken }) })
	require.PanicsWithValue(t, "first", func() {
		defer Hold(func() error { return broken })
		panic("first")
	})
	require.NotPanics(t, func() { Hold(func() error { return nil }) })
}

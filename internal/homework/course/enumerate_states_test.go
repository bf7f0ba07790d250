package course

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file anew")

var threeIDs = [3]int32{1, 2, 3}

// Ensure that the enumeration has the recorded numbers of states and calls. A change that omits some of them is
// noticed.
func TestTheNumberOfStatesIsRecorded(t *testing.T) {
	var table strings.Builder
	fmt.Fprintln(&table, "blocks calls states refused changes")
	for blocks := 1; blocks <= 3; blocks++ {
		for calls := 1; calls <= 7; calls++ {
			states, refused, changes := 0, 0, 0
			for c := range small(blocks, threeIDs, calls).cases() {
				states++
				refused += len(c.refused)
				changes += len(c.accepted)
			}
			fmt.Fprintf(&table, "%6d %5d %6d %7d %7d\n", blocks, calls, states, refused, changes)
		}
	}
	golden := filepath.Join("testdata", "states.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), table.String())
}

func TestNothingIsLeftOut(t *testing.T) {
	for blocks := 1; blocks <= 3; blocks++ {
		b := small(blocks, threeIDs, 4)
		known := map[[16]byte]bool{}
		for c := range b.cases() {
			known[c.state.key()] = true
		}
		var visit func(m *model, calls int)
		visit = func(m *model, calls int) {
			require.True(t, known[m.key()], "%v", m)
			if calls == 0 {
				return
			}
			for _, op := range m.callsOf(threeIDs[:], b.lengths) {
				next := m.clone()
				next.play(op)
				visit(next, calls-1)
			}
		}
		visit(played(b.start), 3)
	}
}

func TestAStateIsListedOnceWithAShortestPath(t *testing.T) {
	seen := map[[16]byte]bool{}
	length := 0
	for c := range small(2, threeIDs, 6).cases() {
		key := c.state.key()
		require.False(t, seen[key], "%v comes twice", c.path)
		seen[key] = true
		require.GreaterOrEqual(t, len(c.path), length, "a longer path came before")
		length = len(c.path)
		require.NoError(t, c.state.engine.Check())
		for _, op := range c.refused {
			require.False(t, c.state.play(op), "%v", op)
		}
		for _, op := range c.accepted {
			after := c.state.clone()
			require.True(t, after.play(op), "%v", op)
			require.True(t, after.engine == nil || after.key() != key, "%v", op)
		}
		require.Equal(t, key, c.state.key(), "a refused call changed something, or a clone shares something")
	}
}

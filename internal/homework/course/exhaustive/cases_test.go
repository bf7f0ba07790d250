package exhaustive

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/block"
	"llmmemory/internal/homework/course/trace"
	_ "llmmemory/internal/testkit/gcpercent"
)

var update = flag.Bool("update", false, "write the golden file anew")

var ids = [3]int32{1, 2, 3}

// Ensure that the numbers of states and calls are those of a golden file, so that a change of the enumeration
// cannot drop some without being noticed.
func TestTheNumberOfStatesIsRecorded(t *testing.T) {
	var table strings.Builder
	fmt.Fprintln(&table, "blocks calls states refused changes")
	for blocks := 1; blocks <= 3; blocks++ {
		for calls := 1; calls <= 7; calls++ {
			states, refused, changes := 0, 0, 0
			for c := range Small(blocks, ids, calls).Cases() {
				states++
				refused += len(c.Refused)
				changes += len(c.Changes)
			}
			fmt.Fprintf(&table, "%6d %5d %6d %7d %7d\n", blocks, calls, states, refused, changes)
		}
	}
	golden := filepath.Join("testdata", "states.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), table.String())
	t.Log("\n" + table.String())
}

// Ensure that every sequence of calls, with every id, leads to a state that Cases lists.
func TestNothingIsLeftOut(t *testing.T) {
	for blocks := 1; blocks <= 3; blocks++ {
		b := Small(blocks, ids, 4)
		known := map[[16]byte]bool{}
		for c := range b.Cases() {
			known[c.State.key()] = true
		}
		reached := 0
		var from func(s *State, calls int)
		from = func(s *State, calls int) {
			reached++
			require.True(t, known[s.key()], "%v", s)
			if calls == 0 {
				return
			}
			for _, op := range everyCall(s, b.Lengths) {
				next := s.Clone()
				if next.Play(op); next.Exists {
					from(&next, calls-1)
				}
			}
		}
		start := b.start()
		from(&start, 3)
		t.Logf("%d blocks: %d sequences of calls, %d states", blocks, reached, len(known))
	}
}

func everyCall(s *State, lengths []int32) []trace.Op {
	var ops []trace.Op
	for _, id := range ids {
		for _, length := range lengths {
			ops = append(ops, trace.Op{Kind: trace.Create, A: id, B: length})
		}
		for _, child := range ids {
			ops = append(ops, trace.Op{Kind: trace.Fork, A: id, B: child})
		}
		record := int32(0)
		if q := s.find(id); q != nil {
			record = q.KVCount
		}
		ops = append(ops, trace.Op{Kind: trace.Append, A: id, B: record}, trace.Op{Kind: trace.Free, A: id})
	}
	return append(ops, trace.Op{Kind: trace.Destroy})
}

func TestACaseKeepsItsPromises(t *testing.T) {
	seen := map[[16]byte]bool{}
	length := 0
	for c := range Small(2, ids, 6).Cases() {
		key := c.State.key()
		require.False(t, seen[key], "%v comes twice", c.Path)
		seen[key] = true
		require.GreaterOrEqual(t, len(c.Path), length, "a longer path came before")
		length = len(c.Path)
		var s State
		for _, op := range c.Path {
			require.True(t, s.Play(op))
		}
		require.Equal(t, c.State, s)
		for _, op := range c.Refused {
			require.False(t, s.Play(op), "%v", op)
			require.Equal(t, c.State, s, "%v changed something", op)
		}
		for _, op := range c.Changes {
			after := s.Clone()
			require.True(t, after.Play(op), "%v", op)
			require.NotEqual(t, c.State, after)
			require.Equal(t, c.State, s, "a clone shares something")
		}
		require.NoError(t, block.Conserved(s.Counts, int(s.Free), s.entries))
	}
}

// entries yields every mapped entry of every table.
func (s *State) entries(yield func(int32) bool) {
	for _, q := range s.Sequences {
		for _, table := range q.Tables {
			if table == nil {
				continue
			}
			for _, id := range table {
				if id != unmapped && !yield(id) {
					return
				}
			}
		}
	}
}

func TestAStartMayBeFarFromInit(t *testing.T) {
	b := Bounds{
		Start: []trace.Op{
			{Kind: trace.Init, A: 300 * 64}, {Kind: trace.Create, A: 1, B: 4095}, {Kind: trace.Forks, A: 1, B: 10, C: 3},
		},
		IDs:     []int32{2},
		Lengths: []int32{1},
		Calls:   2,
	}
	cases := slices.Collect(b.Cases())
	require.Len(t, cases[0].State.Sequences, 4)
	require.Equal(t, b.Start, cases[0].Path)
	require.Contains(t, cases[0].Refused, trace.Op{Kind: trace.Create, A: 2, B: 1, Fail: 3})
	require.Contains(t, cases[0].Changes, trace.Op{Kind: trace.Append, A: 12, B: 4095})
	// Ensure that each other case needs one more call, and that a full sequence takes no more records.
	for _, c := range cases[1:] {
		require.Len(t, c.Path, len(b.Start)+1)
		for _, q := range c.State.Sequences {
			if q.KVCount == 4096 {
				require.Contains(t, c.Refused, trace.Op{Kind: trace.Append, A: q.ID, B: 4096})
			}
		}
	}
}
